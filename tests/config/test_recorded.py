import json

import pytest
from support import call

from simcse_jax.config import flags
from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config, flatten
from simcse_jax.config.recorded import recorded_config
from simcse_jax.errors import UserError


def test_a_run_is_repeated_by_its_record(trained, tmp_path):
    done = call("train", "--config", str(trained / "run.json"), "--workdir", str(tmp_path / "again"))
    assert done.returncode == 0, done.stderr
    runs = [json.loads((folder / "run.json").read_text()) for folder in (trained, tmp_path / "again")]
    assert runs[0]["config"] == runs[1]["config"] and runs[0]["sha256"] == runs[1]["sha256"]
    losses = [
        [json.loads(line).get("loss") for line in (folder / "metrics.jsonl").read_text().splitlines()]
        for folder in (trained, tmp_path / "again")
    ]
    assert losses[0] == losses[1] and any(losses[0])


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
    recorded.seed, recorded.parallel.coordinator, recorded.parallel.processes = (
        7,
        "",
        default_config().parallel.processes,
    )
    assert flatten(config) == flatten(recorded)
    assert isinstance(config.train.learning_rate, float) and isinstance(config.eval.tasks, tuple)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "not valid JSON"),
        ("[1]", "run.json"),
        ("{}", "has no config"),
        (
            '{"config": {"train": {"epoch": 1}}}',
            "no field train.epoch in this version; the nearest one is train.epochs",
        ),
        ('{"config": {"train": {"epochs": "two"}}}', "train.epochs is 'two'; its default is 1"),
        ('{"config": {}}', "has no config"),
        ('{"config": {"train.epoch": 2}}', "no field train.epoch in this version"),
        ('{"config": {"train": {"epochs": {}}}}', "train.epochs is {}; its default is 1"),
        ('{"config": {"train": {"learning_rate": true}}}', "train.learning_rate is True"),
        ('{"config": {"train": 3}}', "no field train in this version"),
        ('{"config": {"objective": {"mine": {"weight": 1.0}}}}', "config.objective.mine: no such objective"),
    ],
)
def test_a_record_that_is_none_is_named(content, told, tmp_path):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UserError, match=r"run\.json: ") as caught:
        recorded_config(str(tmp_path / "run.json"))
    assert told in str(caught.value)


def test_what_is_not_there_or_no_table_is_said(trained):
    with pytest.raises(UserError, match=r"none/run.json: cannot be read"):
        recorded_config("none/run.json")
    done = call("sweep", "--config", str(trained / "run.json"), "--workdir", "w")
    assert done.returncode == 2 and "repeats one run" in done.stderr
    done = call("sweep", "--config", "mine.py:settings.json", "--workdir", "w")
    assert done.returncode == 2 and "mine.py: no such config file" in done.stderr
