import json

import pytest
from support import call, refused

from simcse_jax.config import flags
from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config, flatten
from simcse_jax.config.recorded import recorded_config
from simcse_jax.errors import UserError


def test_the_record_of_a_run_is_its_config(trained):
    config = recorded_config(str(trained / "run.json"))
    assert config.train.learning_rate == 1e-3 and config.model.mlp == "always" and config.train.max_steps == 8
    assert json.loads(config.to_json()) == json.loads((trained / "run.json").read_text())["config"]


def test_fields_are_changed_as_those_of_a_recipe_and_missing_ones_are_at_their_defaults(tmp_path):
    recorded = default_config()
    recorded.eval.tasks, recorded.train.learning_rate = ("STS12",), 1.0
    recorded.parallel.coordinator, recorded.parallel.processes = "host:1", 2  # where it was
    fields = json.loads(recorded.to_json())
    del fields["train"]["mu_dtype"], fields["data"]["equal_texts"]  # a version that did not have them
    recorded.data.equal_texts = "negatives"  # as it was then
    (tmp_path / "run.json").write_text(json.dumps({"config": fields}))
    config, _ = flags.parse([f"--config={tmp_path}/run.json", "--workdir=w", "--config.seed=7"])
    validate(config)
    recorded.seed, recorded.parallel = 7, default_config().parallel
    assert flatten(config) == flatten(recorded)
    assert isinstance(config.train.learning_rate, float) and isinstance(config.eval.tasks, tuple)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("{", "not valid JSON"),
        ("[1]", ""),
        ("{}", "has no config"),
        ('{"config": {}}', "has no config"),
        ('{"config": {"train": {"epoch": 1}}}', "no field train.epoch .* train.epochs$"),
        ('{"config": {"train.epoch": 2}}', "no field train.epoch"),
        ('{"config": {"train": 3}}', "no field train"),
        ('{"config": {"train": {"epochs": "two"}}}', "train.epochs is 'two'.* 1$"),
        ('{"config": {"train": {"epochs": {}}}}', "train.epochs is {}"),
        ('{"config": {"train": {"learning_rate": true}}}', "train.learning_rate is True"),
        ('{"config": {"objective": {"mine": {"weight": 1.0}}}}', "config.objective.mine"),
    ],
)
def test_a_record_that_is_none_is_named(content, named, tmp_path):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UserError, match=rf"run\.json: .*{named}"):
        recorded_config(str(tmp_path / "run.json"))


def test_what_is_not_there_or_no_table_is_said(trained):
    with pytest.raises(UserError, match=r"none/run.json"):
        recorded_config("none/run.json")
    refused(call("sweep", "--config", trained / "run.json", "--workdir", "w"), "run.json")
    refused(call("sweep", "--config", "mine.py:settings.json", "--workdir", "w"), "mine.py")
