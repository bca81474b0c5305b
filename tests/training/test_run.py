import json
import os
import shutil

import jax
import numpy as np
import pytest
from support import call, lines, refused, succeeded, train_args
from support.jobs import another_job

from simcse_jax.config.flags import parse
from simcse_jax.errors import UserError
from simcse_jax.evaluation import sts
from simcse_jax.host.locks import held
from simcse_jax.host.storage import write_atomically
from simcse_jax.huggingface.load import load
from simcse_jax.runs import workdir as workdirs
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.loading import load_model
from simcse_jax.simcse import SimCSE
from simcse_jax.training.run import read


def result_of(workdir):
    return json.loads((workdir / "result.json").read_text())


@pytest.fixture
def again(trained, tiny_bert, corpus, tmp_path):
    """A copy of `trained`, and a function that starts it again with other arguments."""
    workdir = shutil.copytree(trained, tmp_path / "run")
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], workdir, "--config.model.mlp=always")
    return workdir, lambda *more: call("train", *args, *more)


def test_a_run_leaves_all_that_it_promises_and_keeps_the_changes_of_training_and_no_others(trained, tiny_bert):
    run_json = json.loads((trained / "run.json").read_text())
    assert run_json["config"]["model"]["mlp"] == "always"
    assert run_json["config"]["objective"]["info_nce"]["temperature"] == 0.05
    assert {"python", "jax", "flax", "simcse_jax"} <= set(run_json["versions"])
    assert run_json["device"]["kind"] and list((trained / "tensorboard").iterdir())
    logged = [line for line in lines(trained) if "loss" in line]
    assert [line["step"] for line in logged] == [1, 2, 4, 6, 8]  # the first, every second, the last
    assert all(set(line) >= {"loss", "learning_rate", "sentences_per_second"} for line in logged)
    rates = [1e-3 * (1 - step / 8) for step in (0, 1, 3, 5, 7)]
    np.testing.assert_allclose([line["learning_rate"] for line in logged], rates)
    scored = {line["step"]: line["eval/dev"] for line in lines(trained) if "eval/dev" in line}
    assert list(scored) == [0, 3, 6, 8]
    best = max(score for step, score in scored.items() if step)
    assert result_of(trained)["dev"]["spearman"] == pytest.approx(best, abs=1e-3)
    kept = {int(path.name) for path in (trained / "checkpoints").iterdir() if path.name.isdigit()}
    assert kept == {6, 8, max(step for step, score in scored.items() if step and score == best)}
    # The head trains with the encoder; the rows of tokens that never stood in a batch keep their values.
    before, after = load(str(tiny_bert)).params, load_model(str(trained)).params
    assert set(after) == set(before) | {"head.kernel", "head.bias"}
    assert all(np.abs(after[name] - before[name]).max() > 0 for name in before)
    unused = "encoder.embeddings.type.embedding"
    np.testing.assert_array_equal(after[unused][1], before[unused][1])
    checkpoints = Checkpoints(trained, read_only=True)
    like = jax.tree.map(lambda value: jax.ShapeDtypeStruct(value.shape, value.dtype), after)
    saved = checkpoints.restore_params(checkpoints.best, like)
    assert all(np.array_equal(value, saved[name]) for name, value in after.items())


def test_its_report_has_its_pairs_by_the_model_before_and_after_and_none_leaves_it_out(trained, again, corpus):
    page = (trained / "report.html").read_text()
    shown = json.loads((trained / "examples.json").read_text())
    assert (
        f"dev: {lines(trained)[0]['eval/dev']:.2f} before training, {result_of(trained)['dev']['spearman']:.2f}" in page
    )
    assert "Fields that differ from the recipe" in page and page.count('class="heat"') == 2
    pairs = [line.split("\t") for line in corpus["dev"].read_text().splitlines()[1:]]
    assert len(shown["pairs"]) == 8 and all(pair in [row[:2] for row in pairs] for pair in shown["pairs"])
    first, second = (SimCSE(str(trained)).encode(list(side)) for side in zip(*shown["pairs"], strict=True))
    units = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second)]
    np.testing.assert_allclose(units[0] @ units[1].T, shown["after"], atol=1e-3)
    assert np.abs(np.subtract(shown["before"], shown["after"])).max() > 1e-2
    workdir, start = again
    for name in ("report.html", "examples.json", "result.json"):
        (workdir / name).unlink()
    succeeded(start("--report-to", "none"))
    assert result_of(workdir) == result_of(trained)
    assert not (workdir / "report.html").exists() and not (workdir / "examples.json").exists()


@pytest.mark.slow
def test_a_finished_run_started_again_has_the_scores_of_the_checkpoint_that_could_be_read(again):
    workdir, start = again
    result, files = result_of(workdir), lambda: (lines(workdir), sorted(os.listdir(workdir / "checkpoints")))
    before, (best, score) = files(), (result["best_step"], result["dev"]["spearman"])
    scored = {line["step"]: line["eval/dev"] for line in before[0] if "eval/dev" in line and line["step"]}
    assert scored[best] == max(scored.values())
    # Scores of another checkpoint, which a command that was killed left there, are no scores of this run.
    left = json.dumps(result | {"best_step": best + 1, "dev": {"spearman": 1, "pairs": 2}})
    (workdir / "result.json").write_text(left)
    done = start("--config.train.log_every=1", "--config.parallel.devices=0")  # which change no result
    assert done.returncode == 0 and "resuming at step 8 of 8" in done.stdout, done.stderr
    assert files() == before and result_of(workdir)["best_step"] == best
    assert result_of(workdir)["dev"]["spearman"] == pytest.approx(score, abs=1e-3)
    (workdir / "checkpoints" / str(best) / "params" / "manifest.ocdbt").write_bytes(b"")
    done = start()
    assert done.returncode == 0 and "going on with step" in done.stdout, done.stderr
    result = result_of(workdir)
    assert result["best_step"] != best
    assert result["dev"]["spearman"] == pytest.approx(scored[result["best_step"]], abs=1e-3)


def test_another_config_is_refused_before_sentences_are_read_and_other_data_before_training(again, corpus, tmp_path):
    workdir, start = again
    done = start("--config.data.train=no/such.txt", "--config.seed=7")
    refused(done, workdir)
    assert done.stderr.endswith(f"\n  data.train was {str(corpus['csv'])!r}, is 'no/such.txt'\n  seed was 42, is 7\n")
    before = {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()}
    for kind, field in (("csv", "data.train"), ("dev", "eval.data")):
        other = tmp_path / corpus[kind].name
        other.write_text(corpus[kind].read_text().replace("cat", "dog"))
        record = workdir / "run.json"
        record.write_text(before[record].decode().replace(str(corpus[kind]), str(other)))
        refused(start(f"--config.{field}={other}"), field, "changed")
        record.write_bytes(before[record])
    with another_job(held(workdir)):  # one job at a time writes there, and readers go on
        refused(start(), f"{workdir}: another job")
        assert load_model(str(workdir)).params
    assert {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()} == before
    # Before there is a run, another job or a foreign folder ends it.
    (tmp_path / "foreign" / "model").mkdir(parents=True)
    (tmp_path / "foreign" / "model" / "precious").write_text("mine")
    refused(start(f"--workdir={tmp_path / 'foreign'}"), f"{tmp_path / 'foreign'}")
    assert [path.read_text() for path in (tmp_path / "foreign" / "model").iterdir()] == ["mine"]
    with another_job(held(tmp_path / "new")):
        refused(start(f"--workdir={tmp_path / 'new'}"), f"{tmp_path / 'new'}: another job")
    assert not list((tmp_path / "new").iterdir())


@pytest.mark.slow
def test_a_start_that_was_stopped_is_made_whole(again, trained, tmp_path, monkeypatch):
    """By a kill, or on a full disk: a part of `model/` and no `run.json`."""
    _, start = again
    new = [f"--workdir={tmp_path / 'new'}", "--config.train.max_steps=1", "--config.eval.data="]
    model = tmp_path / "new" / "model"
    model.mkdir(parents=True)
    (model / ".config.json.tmp").write_text("{")

    def full(path, content):
        if path.name == "tokenizer.json":
            raise UserError(f"{path}: cannot be written: No space left on device")
        write_atomically(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(workdirs, "write_atomically", full)
        refused(start(*new), "tokenizer.json")
    assert (model / "config.json").exists() and not (tmp_path / "new" / "run.json").exists()
    done = succeeded(start(*new))
    for path in (trained / "model").iterdir():
        if path.name != "simcse_jax.json":
            assert (model / path.name).read_bytes() == path.read_bytes()
    # A short run without scores prints its loss, and every run the command that follows.
    assert f"step 1: loss {lines(tmp_path / 'new')[0]['loss']:.4f}\n" in done.stdout
    assert done.stderr.endswith(f"next: simcse-jax export --workdir {tmp_path}/new --output DIR\n")


def test_what_people_should_know_of_several_configs_is_said_once(tiny_bert, corpus, tmp_path, capsys):
    more = ["--config.data.augment.percent=5", "--config.objective.off_dropout.weight=0.5"]
    config, _ = parse(train_args(tiny_bert, corpus["txt"], "", tmp_path, *more))
    read(config)
    said = capsys.readouterr().out
    for line in ("config.data.augment.percent=5.0 has no effect", "loss: 1 info_nce + 0.5 off_dropout\n"):
        assert said.count(line) == 1


@pytest.mark.slow
def test_a_run_that_trains_nothing_scores_its_initial_weights(tiny_bert, corpus, tmp_path):
    nothing = ("--config.train.epochs=0", "--config.train.max_steps=0", "--config.model.mlp=none")
    args = train_args(tiny_bert, "no/such.txt", corpus["dev"], tmp_path / "run", *nothing)
    refused(call("train", *args, "--config.model.mlp=always"), "config.model.mlp=always")  # there is no head
    done = succeeded(call("train", *args, "--config.parallel.devices=3"))
    assert "best checkpoint: step 0" in done.stdout
    assert [(line["step"], set(line)) for line in lines(tmp_path / "run")] == [(0, {"step", "eval/dev"})]
    model = SimCSE(str(tiny_bert), pooler="cls")
    expected = sts.evaluate(model.encode, {"dev": sts.read_graded_pairs(corpus["dev"])})
    result = result_of(tmp_path / "run")
    assert result["dev"]["spearman"] == pytest.approx(expected["dev"]["spearman"], abs=1e-3)
    before, after = load(str(tiny_bert)).params, load_model(str(tmp_path / "run")).params
    assert after.keys() == {name for name in before if not name.startswith("head.")}
    assert all(np.array_equal(before[name], after[name]) for name in after)
    done = call("train", *args)
    assert done.returncode == 0 and "resuming at step 0 of 0" in done.stdout
    assert result_of(tmp_path / "run") == result and len(lines(tmp_path / "run")) == 1
    unscored = train_args(tiny_bert, "no/such.txt", "", tmp_path / "unscored", *nothing)
    assert call("train", *unscored).returncode == 0
    assert load_model(str(tmp_path / "unscored")).pooler == "cls"


@pytest.mark.slow
def test_the_epochs_drop_the_last_partial_batch_of_a_run_that_starts_from_another_one(trained, corpus, tmp_path):
    (tmp_path / "train.txt").write_text("\n".join(["the cat sat", "", "a dog ran", "  "] * 10) + "\n")
    fields = ("train.max_steps=0", "train.batch_size=6", "train.epochs=2", "checkpoint.keep_every=2", "eval.every=5")
    args = train_args(trained, tmp_path / "train.txt", corpus["dev"], tmp_path / "run", "--config.model.mlp=always")
    done = succeeded(call("train", *args, *(f"--config.{field}" for field in fields)))
    assert "20 sentences, 20 blank rows skipped" in done.stdout
    assert "its own head is trained further" in done.stdout
    assert max(line["step"] for line in lines(tmp_path / "run")) == 2 * (20 // 6)
    assert {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()} >= {"2", "4", "6"}
    assert Checkpoints(tmp_path / "run", read_only=True).best in (5, 6)  # those that were evaluated
