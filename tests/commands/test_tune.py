import csv
import json
import os
import re
import shutil

import numpy as np
import pytest
import scipy.stats
from support import call, finish, lines, refused, sentences, start_processes, write_model

from simcse_jax import SimCSE
from simcse_jax.evaluation import sts
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.training import folds
from simcse_jax.training import result as training_result

SHORT = ("--config.train.max_steps=4", "--config.eval.every=2", "--config.parallel.devices=1")


@pytest.fixture
def pairs(tmp_path):
    rows = []
    for row, words in enumerate(text.split() for text in sentences(100)):
        kept = row % (len(words) + 1)
        rows.append((" ".join(words), " ".join([*words[:kept], *sentences(1, row)]), kept / len(words)))
    with open(tmp_path / "my_pairs.csv", "w", newline="") as file:
        csv.writer(file).writerows([("sentence1", "sentence2", "score"), *rows])
    return tmp_path / "my_pairs.csv"


def tune(model, data, workdir, *more):
    return call("tune", "--model", model, "--data", data, "--workdir", workdir, *SHORT, *more)


def is_start(workdir, start):
    found = SimCSE(workdir).encode(["a b"])
    return bool(np.abs(found - SimCSE(start).encode(["a b"])).max() < 1e-5)


def test_folds_decide_and_all_rows_train_what_is_kept(tiny_bert, pairs, tmp_path, monkeypatch):
    compare, low = folds.compare, 1.0
    monkeypatch.setattr(folds, "compare", lambda *args: compare(*args)._replace(low=low))
    run, more = tmp_path / "run", ("--config.train.learning_rate=1e-3",)
    done = tune(tiny_bert, pairs, run, *more)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("compiled ") == 1 and "100 rows in 5 folds" in done.stdout
    result = json.loads((run / "result.json").read_text())
    against, saved = result["against_start"], json.loads((run / "folds.json").read_text())["folds"]
    assert result["best_step"] == against["step"] == 4 and against["rows"] == 100 and len(against["folds"]) == 5
    assert [len(gold) for *_, gold, _ in saved] == [20] * 5
    scores = [[100 * scipy.stats.spearmanr(side, gold)[0] for side in sides] for _, *sides, gold, _ in saved]
    assert np.allclose(against["folds"], scores, atol=1e-3)
    assert np.allclose([against["before"], against["after"]], np.mean(scores, 0), atol=1e-3)
    assert not is_start(run, tiny_bert) and "held_out" not in result
    assert "100 rows in 5 folds, each scored by a model of the others" in (run / "report.html").read_text()
    shown = json.loads((run / "examples.json").read_text())
    assert len(shown["pairs"]) == len(shown["before"]) == len(shown["after"]) >= 4 and shown["rose"] + shown["fell"]
    # Killed after the third fold: the others are trained, and all is as before. Without a gain the start is kept.
    for name in ("checkpoints", "metrics.jsonl", "result.json"):
        (shutil.rmtree if name == "checkpoints" else os.remove)(run / name)
    (run / "folds.json").write_text(json.dumps({"measure": "Spearman × 100", "folds": saved[:3]}))
    low = -1.0
    done = tune(tiny_bert, pairs, run, *more)
    assert done.returncode == 0 and "fold 3 of 5" not in done.stdout and "fold 4 of 5" in done.stdout, done.stderr
    assert json.loads((run / "folds.json").read_text())["folds"] == saved
    found = json.loads((run / "result.json").read_text())
    assert found["best_step"] == 0 and found["against_start"] == against | {"low": -1.0, "step": 0}
    assert is_start(run, tiny_bert) and Checkpoints(run, read_only=True).steps == [0]
    assert "No gain beyond chance, so the base model is kept" in (run / "report.html").read_text()
    assert json.loads((run / "examples.json").read_text()) == shown
    assert tune(tiny_bert, pairs, run, *more).returncode == 0  # it is finished
    assert json.loads((run / "result.json").read_text()) == found
    assert "another run in" in tune(tiny_bert, pairs, tmp_path / "again", "--config.seed=1", *more).stdout
    assert call("export", "--workdir", run, "--output", tmp_path / "out").returncode == 0
    assert "Each of 5 folds was scored" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("helped", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_start_is_kept_unless_training_helped(tiny_bert, pairs, tmp_path, monkeypatch, helped):
    compare = training_result.compare
    low = 1.0 if helped else -1.0
    monkeypatch.setattr(training_result, "compare", lambda *args: compare(*args)._replace(low=low))
    done = tune(tiny_bert, pairs, tmp_path / "run", "--folds=0", "--config.train.learning_rate=1e-3")
    assert done.returncode == 0, done.stderr
    assert "30 of 100 rows are held out" in done.stdout
    header = r"before and after training \(Spearman × 100\):\nbefore \|  after \| change \| +95% interval\n[-+]+\n"
    verdict = "training helped" if helped else "no better, so the base model is kept"
    assert re.search(rf"{header} *\S+ \| *\S+ \| *\S+ \| +\S+ to \S+\n{verdict}\n", done.stdout)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    against = result["against_start"]
    assert against["measure"] == "Spearman × 100"
    assert (result["best_step"] > 0) == helped and against["step"] in (2, 4)
    assert is_start(tmp_path / "run", tiny_bert) == (not helped)
    assert result["held_out"]["spearman"] == pytest.approx(against["after" if helped else "before"], abs=1e-3)
    again = tune(tiny_bert, pairs, tmp_path / "run", "--folds=0", "--config.train.learning_rate=1e-3")  # it is finished
    assert again.returncode == 0 and json.loads((tmp_path / "run" / "result.json").read_text()) == result


@pytest.mark.slow
def test_the_model_keeps_its_settings(tiny_bert, pairs, tmp_path):
    """What its files say, in the run and in an export; and that a run's own prompts are added."""
    folder = shutil.copytree(tiny_bert, tmp_path / "model")
    modules = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    entries = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for kind, path in modules.items()]
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    prompts = {"query": "find: ", "other": "x "}
    settings = {"prompts": prompts, "default_prompt_name": "other", "similarity_fn_name": "dot"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    before = SimCSE(folder)
    done = tune(folder, pairs, tmp_path / "run", f"--eval={pairs}", "--config.eval.every=0")
    assert done.returncode == 0 and "dropped" not in done.stdout, done.stderr
    assert call("export", "--workdir", tmp_path / "run", "--output", tmp_path / "out").returncode == 0
    for model in (SimCSE(tmp_path / "run"), SimCSE(tmp_path / "out")):
        assert model.normalize and model.pooler == before.pooler == "avg" and not model.use_head
        assert (model.prompts["other"], model.prompts["query"]) == ("x ", before.prompts["query"])
        assert (model.default_prompt_name, model.similarity_fn_name) == ("other", "dot")
    against = json.loads((tmp_path / "run" / "result.json").read_text())["against_start"]
    scored = sts.evaluate(before.encode, sts.read(str(pairs), ())[0])["my_pairs"]["spearman"]
    assert against["before"] == pytest.approx(scored, abs=0.05)  # with the default prompt


@pytest.mark.slow
def test_the_best_checkpoint_of_a_file_of_pairs_is_judged_by_its_other_half(tiny_bert, corpus, pairs, tmp_path):
    done = tune(tiny_bert, corpus["txt"], tmp_path / "run", f"--eval={pairs}", "--config.train.batch_size=8")
    assert done.returncode == 0, done.stderr
    assert "held out" not in done.stdout and ("95% interval" in done.stdout or "start, which is kept" in done.stdout)
    assert 40 <= json.loads((tmp_path / "run" / "result.json").read_text())["my_pairs"]["pairs"] <= 60
    assert [line["step"] for line in lines(tmp_path / "run") if "eval/my_pairs" in line] == [0, 2, 4]
    assert 0 in Checkpoints(tmp_path / "run", read_only=True).steps


@pytest.mark.slow
def test_several_processes_tune_together(tiny_bert, pairs, tmp_path):
    args = ["--config=tune", f"--model={tiny_bert}", f"--data={pairs}", "--config.train.learning_rate=1e-3", *SHORT[:2]]
    done = finish(start_processes([*args, f"--workdir={tmp_path / 'two'}"], devices=1))
    assert [code for code, _, _ in done] == [0, 0], done
    assert tune(tiny_bert, pairs, tmp_path / "one", "--config.train.learning_rate=1e-3").returncode == 0
    one, two = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two"))
    assert one["against_start"]["after"] == pytest.approx(two["against_start"]["after"], abs=1e-2)
    assert one["best_step"] == two["best_step"] and "100 rows in 5 folds" in done[0][1]


def test_help_and_the_name_of_the_workdir(tiny_bert, pairs, monkeypatch):
    assert "--eval FILE" in call("tune", "--help").stdout
    refused(call("tune", "--data", pairs), "--model NAME is missing")
    refused(call("tune", "--model", tiny_bert), "--data FILE is missing")
    refused(call("tune", "--model", "a", "--model", "b", "--data", pairs, "--workdir="), "--workdir DIR is missing")
    given = []
    monkeypatch.setattr("simcse_jax.commands.tune.train", given.append)
    assert call("tune", "--model", tiny_bert, f"--data={pairs}").returncode == 0
    assert given[0][:4] == ["--config", "tune", "--workdir", "runs/my_pairs"]


@pytest.mark.slow
def test_of_two_models_the_better_one_is_named_and_the_same_command_resumes(tiny_bert, pairs, tmp_path):
    other = write_model(tmp_path / "other", "roberta")
    args = ("tune", "--model", tiny_bert, "--model", other, "--data", pairs, "--workdir", tmp_path / "run", *SHORT)
    done = call(*args)
    assert done.returncode == 0, done.stderr
    text = done.stdout[done.stdout.index("before and after training, the interval") :]
    names, kept = (tiny_bert.name, "other"), {}
    for name in names:
        result = json.loads((tmp_path / "run" / name / "result.json").read_text())
        against = result["against_start"]
        kept[name] = against["after" if result["best_step"] else "before"]
        assert re.search(rf"{name} \| *{against['before']:.2f} \|.* {kept[name]:.2f}\n", text)
    best = max(names, key=kept.get)
    assert f"use {tmp_path / 'run' / best}\n" in text and f"--workdir {tmp_path / 'run' / best} " in done.stderr
    again = call(*args)
    assert again.stdout.endswith(text) and "fold 1 of 5" not in again.stdout
    assert "nothing was written" in call(*args[:-4], tmp_path / "dry", *SHORT, "--dry-run").stdout


def test_models_that_cannot_be_compared_are_refused_before_any_is_trained(tiny_bert, pairs, corpus, tmp_path):
    two = ("--model", tiny_bert, "--model")
    for args, named in (
        ((*two, tiny_bert, "--data", pairs), f"--model {tiny_bert}: is given twice"),
        ((*two, tmp_path / "none", "--data", pairs), "none: no such folder"),
        ((*two, "", "--data", pairs), "--model NAME is missing"),
        ((*two, write_model(tmp_path / "other", "bert"), "--data", corpus["txt"]), "nothing says which one is better"),
    ):
        refused(call("tune", *args, "--workdir", tmp_path / "run"), named)
        assert not (tmp_path / "run").exists()
