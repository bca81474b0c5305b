import sys

import pytest

from simcse_jax.commands.command_line import Parser
from simcse_jax.commands.geometry_arguments import read_arguments
from simcse_jax.errors import UserError


def read(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["geometry", *arguments, "--output=out"])
    return read_arguments(Parser(prog="simcse_jax.commands.geometry"))


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--models", "m", "--runs", "r", "--data", "x", "--prompt", "in "],
            "--prompt: is for --models",
        ),
        (
            ["--models", "m", "--runs", "r", "--data", "x", "--truncate-dim", "8"],
            "--truncate-dim: is for --models",
        ),
        (
            ["--models", "m", "--data", __file__, "--split", "dev"],
            "--split dev: is for SentEval's folder",
        ),
    ],
)
def test_what_would_have_no_effect_is_refused(monkeypatch, arguments, message):
    with pytest.raises(UserError, match=message):
        read(monkeypatch, *arguments)


def test_the_split_is_that_of_the_test_where_none_is_given(monkeypatch):
    assert read(monkeypatch, "--models", "m", "--data", __file__).args.split == "test"
    assert read(monkeypatch, "--models", "m", "--data", "x", "--split", "all").args.split == "all"
