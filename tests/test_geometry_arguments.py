import sys

from simcse_jax.command_line import Parser
from simcse_jax.geometry_arguments import read_arguments


def read(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["geometry", *arguments, "--output=out"])
    return read_arguments(Parser(prog="simcse_jax.geometry"))


def test_a_method_is_for_the_models_that_name_none(monkeypatch):
    given = ("--models", "a", "b@flow", "c@3@avg@whitening", "--data=x", "--postprocess=whitening")
    options = read(monkeypatch, *given, "--postprocess-data=target", "--postprocess-dimensions=8")
    assert [model.postprocess for model in options.models.values()] == ["whitening", "flow", "whitening"]


def test_each_models_option_is_a_panel(monkeypatch):
    assert read(monkeypatch, "--models", "a", "b=x", "--data=x").panels == {"": ["a", "b=x"]}
    found = read(monkeypatch, "--models", "a", "--models", "b=x", "--data=x")
    assert found.panels == {"panel 1": ["a"], "panel 2": ["b=x"]}
    assert [model.label for model in found.models.values()] == ["", "x"]


def test_runs_have_their_labels(monkeypatch):
    assert read(monkeypatch, "--runs", "runs/a=x", "runs/tau=1@y").runs == {"runs/a": "x", "runs/tau=1@y": ""}
