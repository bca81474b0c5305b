import json
import re

import numpy as np
import pandas
import pytest
from support import ROOT, call, sentences, train_args
from support.steps import alone

from simcse_jax import Run, SimCSE, encode, evaluate, mine, sweep, train
from simcse_jax.commands.api import _collect_fields, set_field
from simcse_jax.config import default_config
from simcse_jax.config.flags import load_config
from simcse_jax.errors import UserError
from simcse_jax.objectives import registry
from simcse_jax.objectives.objective import Objective

TEXTS = sentences(64)
GRADED = [(TEXTS[row], TEXTS[row + 20], row % 5) for row in range(20)]
SHORT = {"batch_size": 8, "max_steps": 4, "max_length": 16, "learning_rate": 1e-3}
SHORT |= {"eval.every": 2, "parallel.devices": 1}


class Stop(Exception):
    pass


def stop_at_2(step, scores):
    """A callback that ends a run."""
    if step == 2:
        raise Stop


@pytest.fixture(autouse=True)
def objectives():
    """Those of the package alone, after each test."""
    yield
    for name in registry.OBJECTIVES.keys() - registry.BUILT_IN:
        del registry.OBJECTIVES[name]


def test_it_is_the_command_s_run_also_on_data_in_memory_and_after_a_stop(tiny_bert, corpus, tmp_path):
    """The same parameters, bit for bit."""
    fields = ("--config.train.max_steps=4", "--config.eval.every=2")
    assert call("train", *train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "a", *fields)).returncode == 0
    lines, seen = corpus["txt"].read_text().splitlines(), []

    def again(data=lines, *callbacks):
        more = SHORT | {"log_every": 2, "eval": str(corpus["dev"]), "callbacks": callbacks}
        return train("configs/unsup_bert.py", workdir=tmp_path / "b", data=data, model=tiny_bert, **more)

    with pytest.raises(Stop):
        again(lines, lambda step, scores: seen.append((step, *scores)), stop_at_2)
    run = again()
    np.testing.assert_array_equal(SimCSE(tmp_path / "a").encode(TEXTS), run.model.encode(TEXTS))
    assert run.scores == json.loads((tmp_path / "a" / "result.json").read_text())
    assert run.config["train.batch_size"] == run.config.train.batch_size == 8
    assert isinstance(run.config.eval.tasks, tuple) and run.config["model.init_from"] == str(tiny_bert)
    assert run.config["data.train"] == str(tmp_path / "b" / "data.parquet")  # the run's own
    assert seen == [(0, "eval/dev"), (2, "eval/dev")]
    assert [line["step"] for line in run.metrics if "loss" in line] == [1, 2, 4]
    assert repr(Run(tmp_path / "b")) == f"Run({str(tmp_path / 'b')!r})"
    with pytest.raises(UserError, match="this workdir has a run on other data"):
        again(lines[:29])


@pytest.mark.slow
def test_a_run_that_keeps_its_start_resumes(tiny_bert, tmp_path):
    def tune(workdir, **more):
        given = SHORT | {"data": GRADED * 5, "eval": GRADED[:]} | more
        return train("tune", workdir=tmp_path / workdir, model=tiny_bert, **given)

    with pytest.raises(Stop):
        tune("run", callbacks=[stop_at_2])
    run, whole = tune("run"), tune("whole")
    np.testing.assert_array_equal(run.model.encode(TEXTS), whole.model.encode(TEXTS))
    assert run.scores == whole.scores and [line["step"] for line in run.metrics if "eval/eval" in line] == [0, 2, 4]


def test_the_loss_of_the_page_is_info_nce_and_is_trained(tiny_bert, tmp_path, capsys):
    page = (ROOT / "docs" / "guides" / "own_loss.md").read_text(encoding="utf-8")
    names = {}
    exec(re.search(r"^```python\n(.*?)^fields = ", page, re.MULTILINE | re.DOTALL)[1], names)
    a, b = np.random.default_rng(0).normal(size=(2, 8, 5)).astype(np.float32)
    found = names["MyLoss"]().loss(alone({"anchor": a, "positive": b}), temperature=0.05)
    a, b = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (a, b))
    expected = np.mean(np.log(np.exp(a @ b.T / 0.05).sum(axis=1)) - np.sum(a * b, axis=1) / 0.05)
    assert float(found) == pytest.approx(expected, rel=1e-4)
    own = {"objective": names["MyLoss"], "objective.my_loss.temperature": 0.05, "max_steps": 2}
    run = train(workdir=tmp_path / "run", data=TEXTS, model=tiny_bert, eval="", **SHORT | own)
    assert run.scores == {}
    assert run.config["objective.my_loss.weight"] == 1 and run.config["objective.info_nce.weight"] == 0
    meant = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("set: "))
    assert {"train.batch_size", "train.max_steps"} <= {*meant.removeprefix("set: ").split(", ")}


MISTAKES = [
    ({"bacth_size": 8}, r"bacth_size: no such field; the nearest one is train.batch_size"),
    ({"temprature": 0.1}, "temprature: no such field; the nearest one is objective.info_nce.temperature"),
    ({"dropout": 0.2}, "dropout: could be model.dropout, model.lora.dropout; give the whole name of one of them"),
    ({"lr": 1, "learning_rate": 2.0}, "learning_rate: train.learning_rate is given twice"),
    ({"data": pandas.DataFrame({"x": [1.0]})}, "the field .x. holds numbers"),
    ({"eval": pandas.DataFrame({"a": ["x"], "b": ["y"]})}, "needs the columns sentence1, sentence2 and score"),
    ({"objective": 7}, "is not a subclass of"),
    ({"objective": type("InfoNCE", (Objective,), {"name": "info_nce"})}, "objective info_nce: this is the name of"),
    ({"workdir": "gs://bucket/run"}, "data.train in memory is written to a disk"),
]


def test_mistakes_are_exceptions_in_one_line(tiny_bert, tmp_path):
    arguments = {"recipe": "unsup_bert", "workdir": tmp_path / "run", "data": TEXTS, "model": tiny_bert, "eval": ""}
    for given, message in MISTAKES:
        with pytest.raises(UserError, match=message):
            train(**arguments | given)
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_config_s_fields_are_set_in_their_types_and_short_names_mean_those_of_what_is_trained():
    config = default_config()
    set_field(config, "train.learning_rate", 1)
    set_field(config, "eval.tasks", ["STS12"])
    set_field(config, "model.pooler", "mean")
    assert (config.train.learning_rate, config.eval.tasks, config.model.pooler) == (1.0, ("STS12",), "avg")
    weights = {"objective.cosent.weight": 0.0, "objective.info_nce.weight": 1.0}
    for more, objective, meant in (({}, None, "cosent"), ({}, "gist", "gist"), (weights, None, "info_nce")):
        found = _collect_fields(load_config("graded")[0], None, None, None, objective, {"temperature": 0.1} | more)
        named = {name: value for name, value in found.items() if name.endswith("temperature")}
        assert named == {f"objective.{meant}.temperature": 0.1}


def test_the_other_commands(trained, tiny_bert, corpus, tmp_path):
    scores = evaluate(trained, corpus["dev"], metric="pearson", output=tmp_path / "scores.json")
    assert json.loads((tmp_path / "scores.json").read_text()) == scores and scores["dev"]["pairs"] > 2
    encode(trained, corpus["txt"], tmp_path / "a.npy", normalize=True, max_length=8)
    np.testing.assert_allclose(np.linalg.norm(np.load(tmp_path / "a.npy"), axis=1), 1, atol=1e-5)
    columns = ["anchor=sent0", "positive=sent1"]
    mine(trained, corpus["csv"], corpus["txt"], tmp_path / "mined.jsonl", columns=columns, num_negatives=2)
    assert "negative" in (tmp_path / "mined.jsonl").read_text().partition("\n")[0]
    for wrong, message in (
        (lambda: Run(tmp_path), r"no run\.json there"),
        (lambda: evaluate(trained, corpus["dev"], metric="pearsn"), "metric: no metric 'pearsn'"),
        (lambda: encode(trained, "none.txt", tmp_path / "b.npy"), "none.txt: no such file"),
        (lambda: mine(trained, corpus["csv"], corpus["txt"], tmp_path / "m.csv"), "must end in"),
    ):
        with pytest.raises(UserError, match=message):
            wrong()


@pytest.mark.slow
def test_a_sweep(tiny_bert, corpus, tmp_path):
    named = {"model": tiny_bert, "data": corpus["txt"], "eval": corpus["dev"]}
    more = {"over": {"learning_rate": [1e-3, 1e-4]}, "sweep.seeds": [1], **SHORT}
    with pytest.raises(UserError, match=r"^data: a sweep takes the name of a file or folder, not list$"):
        sweep("unsup_bert", workdir=tmp_path, **named | more | {"data": ["a", "b"]})
    with pytest.raises(UserError, match=r"^temperature: could be objective\.angle\.temperature, "):
        few = {"over": {"temperature": [0.1]}, "objective.info_nce.weight": 0.0, "objective.mlm.weight": 1.0}
        sweep("unsup_bert", workdir=tmp_path, **few)
    table = sweep("unsup_bert", workdir=tmp_path, **named, **more)
    run = json.loads(next(tmp_path.glob("*/seed1/run.json")).read_text())
    assert (run["config"]["model"]["init_from"], run["config"]["teacher"]["model"]) == (str(tiny_bert), "")
    assert "`simcse_jax.sweep('unsup_bert', workdir=" in table.read_text()  # what made it
    assert table.suffix == ".md" and table.read_text().count("| 0.0001 ") + table.read_text().count("0.0001") >= 1
