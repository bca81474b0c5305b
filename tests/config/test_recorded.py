import json

import pytest
from support import call, lines, refused
from support.listed import record

from simcse_jax.config import flags
from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config, flatten
from simcse_jax.config.recorded import config_fingerprint, recorded_config
from simcse_jax.errors import UserError


def test_a_run_is_repeated_by_its_record_and_another_seed_gives_another_end(trained, tmp_path):
    config = recorded_config(str(trained / "run.json"))
    assert config.train.learning_rate == 1e-3 and config.model.mlp == "always" and config.train.max_steps == 8
    assert json.loads(config.to_json()) == json.loads((trained / "run.json").read_text())["config"]
    records, losses = [], []
    for folder, more in (
        (trained, None),
        (tmp_path / "again", ()),
        (tmp_path / "other", ("--config.seed=7", "--config.eval.data=")),
    ):
        if more is not None:
            done = call("train", "--config", trained / "run.json", "--workdir", folder, *more)
            assert done.returncode == 0, done.stderr
        records.append(json.loads((folder / "run.json").read_text()))
        losses.append([line["loss"] for line in lines(folder) if "loss" in line])
    assert records[0]["config"] == records[1]["config"] and records[0]["sha256"] == records[1]["sha256"]
    assert losses[0] == losses[1] and len(losses[0]) == 5 and losses[2][-1] != losses[0][-1]


def test_processes_differ_in_their_numbers_alone():
    config, other = default_config(), default_config()
    other.parallel.process_id = 3
    assert config_fingerprint(config) == config_fingerprint(other)
    other.seed = 1
    assert config_fingerprint(config) != config_fingerprint(other)


def test_fields_are_changed_as_those_of_a_recipe(tmp_path):
    recorded = default_config()
    recorded.eval.tasks, recorded.train.learning_rate = ("STS12",), 1.0
    recorded.parallel.coordinator, recorded.parallel.processes = "host:1", 2  # where it was
    (tmp_path / "run.json").write_text(json.dumps(record(recorded)))
    config, _ = flags.parse([f"--config={tmp_path}/run.json", "--workdir=w", "--config.seed=7"])
    validate(config)
    recorded.seed, recorded.parallel = 7, default_config().parallel
    assert flatten(config) == flatten(recorded)
    assert isinstance(config.train.learning_rate, float) and isinstance(config.eval.tasks, tuple)


def changed(section, **fields):
    run = record(default_config())
    run["config"][section] |= fields
    return run


@pytest.mark.parametrize(("content", "named"), [
    ("{", "not valid JSON"), ([1], ""), ({}, "has no config"), ({"config": {}}, "has no config"),
    (changed("train", epoch=1), "config.train.epoch is no field"),
    (changed("train", epoch=1) | {"versions": {"simcse_jax": "0.1.0"}}, "written by simcse_jax 0.1.0 in a format that"),
    ({"config": {"train": 3}}, "config.* is missing"), (changed("train", epochs="two"), "damaged: "),
    (changed("train", epochs={}), "config.train.epochs is missing"),
])  # fmt: skip
def test_a_record_that_is_none_is_named(content, named, tmp_path):
    (tmp_path / "run.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(UserError, match=rf"run\.json: .*{named}"):
        recorded_config(str(tmp_path / "run.json"))


def test_what_is_not_there_or_no_table_is_said(trained):
    with pytest.raises(UserError, match=r"none/run.json"):
        recorded_config("none/run.json")
    for config, named in ((trained / "run.json", "run.json"), ("mine.py:settings.json", "mine.py")):
        refused(call("sweep", "--config", config, "--workdir", "w"), named)
