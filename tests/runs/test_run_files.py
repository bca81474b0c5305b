import copy
import json

import pytest
from support.listed import record

from simcse_jax.config import default_config
from simcse_jax.errors import UserError
from simcse_jax.models.config import Dense, Normalize
from simcse_jax.runs.metrics_file import read_metrics
from simcse_jax.runs.run_files import describe_modules, read_modules, read_run

RUN = record(default_config(), sha256={"data.train": "5c", "model.init_from": "ac", "eval.data": "94"})


def changed(path: str, value: object) -> dict:
    run = section = copy.deepcopy(RUN)
    *parts, last = path.split("/")
    for part in parts:
        section = section[part]
    section[last] = value
    return run


def test_a_run_is_read_as_it_was_also_with_an_objective_of_ones_own(tmp_path):
    for run in (RUN, changed("config/objective/own", {"weight": 1.0, "rows": [1]})):
        (tmp_path / "run.json").write_text(json.dumps(run))
        assert read_run(tmp_path / "run.json") == run


def test_a_run_of_another_format_or_a_version_with_other_fields_is_refused_with_its_version(tmp_path):
    fewer, more, other = (changed("versions/simcse_jax", version) for version in ("0.1.0", "9.1", "9.2"))
    del fewer["config"]["data"]["mixed"]
    more["config"]["new"] = {"field": [1]}
    other["format"] += 1
    for run, version in ((fewer, "0.1.0"), (more, "9.1"), (other, "9.2"), ({}, "of another version")):
        (tmp_path / "run.json").write_text(json.dumps(run))
        with pytest.raises(UserError, match=rf"run\.json: written by simcse_jax {version} in a .*; use that version"):
            read_run(tmp_path / "run.json")


def test_modules_are_read_as_they_were():
    modules = (Dense("tanh", 4, inputs=8), Normalize())
    assert read_modules({"model": {"modules": describe_modules(modules)}}) == modules
    assert read_modules({"model": {}}) == ()


def test_lines_that_are_no_metrics_are_refused(tmp_path):
    for content in (b"\xff\xfe{\x00", b"[1]\n", b"[" * 10**5 + b"\n", b"{}\n", b'{"step": "1"}\n', b'{"step": -1}\n'):
        (tmp_path / "metrics.jsonl").write_bytes(content)
        with pytest.raises(UserError, match=r"metrics\.jsonl: (line 1: |cannot be read: )"):
            read_metrics(tmp_path)
