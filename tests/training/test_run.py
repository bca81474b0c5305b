"""The run, through the command line, as a user starts it."""

import json
import os
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from support import call, lines, refused, run, train_args
from support.jobs import another_job
from support.resuming import trained_and_resumed

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


def test_a_run_leaves_all_that_it_promises(trained):
    run_json = json.loads((trained / "run.json").read_text())
    assert run_json["config"]["model"]["mlp"] == "always"
    assert run_json["config"]["objective"]["info_nce"]["temperature"] == 0.05
    assert {"python", "jax", "flax", "simcse_jax"} <= set(run_json["versions"])
    assert run_json["device"]["kind"]
    logged = [line for line in lines(trained) if "loss" in line]
    assert [line["step"] for line in logged] == [1, 2, 4, 6, 8]  # the first, every second, the last
    assert all(set(line) >= {"loss", "learning_rate", "sentences_per_second"} for line in logged)
    np.testing.assert_allclose(
        [line["learning_rate"] for line in logged], [1e-3 * (1 - k / 8) for k in (0, 1, 3, 5, 7)]
    )
    scored = {line["step"]: line["eval/dev"] for line in lines(trained) if "eval/dev" in line}
    assert list(scored) == [0, 3, 6, 8]
    assert list((trained / "tensorboard").iterdir())
    result = json.loads((trained / "result.json").read_text())
    best = max(score for step, score in scored.items() if step)
    assert result["dev"]["spearman"] == pytest.approx(best, abs=1e-3)
    kept = {int(path.name) for path in (trained / "checkpoints").iterdir() if path.name.isdigit()}
    assert kept == {6, 8, max(step for step, score in scored.items() if step and score == best)}


def test_a_finished_run_started_again_changes_nothing(trained, tiny_bert, corpus, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "run")

    def files():
        result = json.loads((workdir / "result.json").read_text())
        return lines(workdir), result["dev"]["spearman"], sorted(os.listdir(workdir / "checkpoints"))

    before = files()
    again = train_args(tiny_bert, corpus["csv"], corpus["dev"], workdir, "--config.model.mlp=always")
    done = call("train", *again, "--config.train.log_every=1", "--config.parallel.devices=0")
    assert done.returncode == 0, done.stderr
    assert "resuming at step 8 of 8" in done.stdout
    assert files() == before


def test_scores_are_those_of_the_checkpoint_that_could_be_read(trained, tiny_bert, corpus, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "run")
    scored = {line["step"]: line["eval/dev"] for line in lines(workdir) if "eval/dev" in line and line["step"]}
    result = json.loads((workdir / "result.json").read_text())
    best, score = result["best_step"], result["dev"]["spearman"]
    assert scored[best] == max(scored.values())
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], workdir, "--config.model.mlp=always")
    # Scores of another checkpoint, which a command that was killed left there, are no scores of this run.
    (workdir / "result.json").write_text(
        json.dumps(result | {"best_step": best + 1, "dev": {"spearman": 1, "pairs": 2}})
    )
    assert call("train", *args).returncode == 0
    assert json.loads((workdir / "result.json").read_text())["dev"]["spearman"] == pytest.approx(score, abs=1e-3)
    (workdir / "result.json").write_text('{"dev": ')  # cut off; it is written again
    assert call("train", *args).returncode == 0
    assert json.loads((workdir / "result.json").read_text())["best_step"] == best
    (workdir / "checkpoints" / str(best) / "params" / "manifest.ocdbt").write_bytes(b"")
    done = call("train", *args)
    assert done.returncode == 0 and "taking the next best" in done.stdout, done.stderr
    result = json.loads((workdir / "result.json").read_text())
    assert result["best_step"] != best
    assert result["dev"]["spearman"] == pytest.approx(scored[result["best_step"]], abs=1e-3)


def test_a_workdir_that_belongs_to_another_config_or_other_data(trained, tiny_bert, corpus, tmp_path):
    """With files of its own: other tests read the shared ones at the same time."""
    own = {kind: Path(shutil.copy(path, tmp_path)) for kind, path in corpus.items()}
    workdir = shutil.copytree(trained, tmp_path / "run")
    run_json = (workdir / "run.json").read_text()
    (workdir / "run.json").write_text(run_json.replace(str(corpus["csv"].parent), str(tmp_path)))
    args = train_args(tiny_bert, own["csv"], own["dev"], workdir, "--config.model.mlp=always")
    refused(call("train", *args, "--config.seed=1"), "another config", "seed was 42, is 1", workdir)
    for kind, field in (("csv", "data.train"), ("dev", "eval.data")):
        original = own[kind].read_text()
        own[kind].write_text(original.replace("cat", "dog"))
        refused(call("train", *args), f"the contents of {field}=", "have changed since")
        own[kind].write_text(original)


def test_what_differs_stands_on_a_line_each_and_is_found_before_sentences_are_read(trained, tiny_bert, corpus):
    args = train_args(tiny_bert, "no/such.txt", corpus["dev"], trained, "--config.model.mlp=always", "--config.seed=7")
    done = call("train", *args)
    refused(done, f"{trained} belongs to another config")
    assert done.stderr.endswith(f"\n  data.train was {str(corpus['csv'])!r}, is 'no/such.txt'\n  seed was 42, is 7\n")


def test_a_short_run_prints_its_loss_and_the_command_that_follows(tiny_bert, corpus, tmp_path):
    fields = ("--config.train.max_steps=1", "--config.eval.data=")
    done = call("train", *train_args(tiny_bert, corpus["txt"], "", tmp_path / "run", *fields))
    assert done.returncode == 0, done.stderr
    assert f"step 1: loss {lines(tmp_path / 'run')[0]['loss']:.4f}\n" in done.stdout
    assert done.stderr.endswith(f"next: simcse-jax export --workdir {tmp_path}/run --output DIR\n")


def test_a_run_with_a_mean_in_bfloat16_resumes_bit_for_bit_and_with_no_other_type(trained, tiny_bert, corpus, tmp_path):
    more = ["--config.train.mu_dtype=bfloat16", "--config.train.max_steps=4", "--config.eval.every=2"]
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", *more)
    trained_and_resumed(parse(args)[0], tmp_path)
    done = call("train", *args, "--config.train.mu_dtype=float32")
    refused(done, "train.mu_dtype was 'bfloat16', is 'float32'", "choose another workdir")
    workdir = shutil.copytree(trained, tmp_path / "wide")
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], workdir, "--config.model.mlp=always", *more[:1])
    refused(call("train", *args), "train.mu_dtype was 'float32', is 'bfloat16'", "choose another workdir")


def test_a_run_of_a_version_that_knew_fewer_fields_had_their_defaults(trained, tiny_bert, corpus, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "run")
    run_json = json.loads((workdir / "run.json").read_text())
    for field in ("transfer", "postprocess", "postprocess_data", "postprocess_dimensions"):
        del run_json["config"]["eval"][field]
    del run_json["config"]["data"]["equal_texts"]  # which then were negatives: the fingerprint knows nothing of them
    (workdir / "run.json").write_text(json.dumps(run_json))
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], workdir, "--config.model.mlp=always")
    args.append("--config.data.equal_texts=")
    assert call("train", *args).returncode == 0
    whitening = ("--config.eval.postprocess=whitening", "--config.eval.postprocess_data=target")
    refused(call("train", *args, *whitening), "eval.postprocess was '', is 'whitening'")


NOTHING = ("--config.train.epochs=0", "--config.train.max_steps=0", "--config.model.mlp=none")


def test_a_run_that_trains_nothing_has_no_random_head(tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", *NOTHING, "--config.model.mlp=always")
    refused(call("train", *args), "config.model.mlp=always", "no such head of its own")


def test_a_run_that_trains_nothing_scores_its_initial_weights(tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, "no/such.txt", corpus["dev"], tmp_path / "run", *NOTHING)
    done = call("train", *args, "--config.parallel.devices=3")
    assert done.returncode == 0, done.stderr
    assert "best checkpoint: step 0" in done.stdout
    assert [(line["step"], set(line)) for line in lines(tmp_path / "run")] == [(0, {"step", "eval/dev"})]
    model = SimCSE(str(tiny_bert), pooler="cls")
    expected = sts.evaluate(model.encode, {"dev": sts.read_graded_pairs(corpus["dev"])})
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["dev"]["spearman"] == pytest.approx(expected["dev"]["spearman"], abs=1e-3)
    before, after = load(str(tiny_bert)).params, load_model(str(tmp_path / "run")).params
    assert after.keys() == {name for name in before if not name.startswith("head.")}
    assert all(np.array_equal(before[name], after[name]) for name in after)
    done = call("train", *args)
    assert done.returncode == 0 and "resuming at step 0 of 0" in done.stdout
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    assert len(lines(tmp_path / "run")) == 1
    without_scores = train_args(tiny_bert, "no/such.txt", "", tmp_path / "unscored", *NOTHING)
    assert call("train", *without_scores).returncode == 0
    assert load_model(str(tmp_path / "unscored")).pooler == "cls"


def test_the_epochs_drop_the_last_partial_batch_and_blank_lines_are_reported(tiny_bert, corpus, tmp_path):
    (tmp_path / "train.txt").write_text("\n".join(["the cat sat", "", "a dog ran", "  "] * 10) + "\n")
    fields = ("train.max_steps=0", "train.batch_size=6", "train.epochs=2", "checkpoint.keep_every=2", "eval.every=5")
    args = train_args(tiny_bert, tmp_path / "train.txt", corpus["dev"], tmp_path / "run")
    done = call("train", *args, *(f"--config.{field}" for field in fields))
    assert done.returncode == 0, done.stderr
    assert "20 sentences, 20 blank rows skipped" in done.stdout
    assert max(line["step"] for line in lines(tmp_path / "run")) == 2 * (20 // 6)
    assert {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()} >= {"2", "4", "6"}
    assert Checkpoints(tmp_path / "run", read_only=True).best in (5, 6)  # those that were evaluated


@pytest.mark.slow
def test_a_model_trained_on_many_devices_is_read_on_one(tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], "", tmp_path / "run", "--config.parallel.devices=8")
    done = call("train", *args, "--config.train.max_steps=1")
    assert done.returncode == 0, done.stderr
    done = run("evaluate", "--model", tmp_path / "run", "--data", corpus["dev"])
    assert done.returncode == 0, done.stderr


def test_keeps_the_changes_of_training_and_no_others(trained, tiny_bert):
    """The head trains with the encoder; the rows of tokens that never stood in a batch keep their values."""
    before, after = load(str(tiny_bert)).params, load_model(str(trained)).params
    assert set(after) == set(before) | {"head.kernel", "head.bias"}
    assert all(np.abs(after[name] - before[name]).max() > 0 for name in before)
    unused = "encoder.embeddings.type.embedding"
    np.testing.assert_array_equal(after[unused][1], before[unused][1])


def test_a_workdir_is_a_model_to_start_from(trained, tiny_bert, corpus, tmp_path):
    args = train_args(trained, corpus["csv"], corpus["dev"], tmp_path / "run", "--config.model.mlp=always")
    done = call("train", *args, "--config.train.max_steps=1")
    assert done.returncode == 0, done.stderr
    assert "its own head is trained further" in done.stdout


def test_a_foreign_folder_is_not_written_to(tiny_bert, corpus, tmp_path):
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "precious").write_text("mine")
    refused(call("train", *train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run")), "no run.json")
    assert (tmp_path / "run" / "model" / "precious").read_text() == "mine"


def test_one_job_at_a_time_writes_to_a_workdir_and_readers_go_on(trained, tiny_bert, corpus, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "run")
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], workdir, "--config.model.mlp=always")
    before = {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()}
    with another_job(held(workdir)):
        refused(call("train", *args), f"{workdir}: process {os.getpid()} on ", ", since 20", " is writing there")
        assert load_model(str(workdir)).params
    assert {path: path.read_bytes() for path in workdir.rglob("*") if path.is_file()} == before
    with another_job(held(tmp_path / "new")):  # before there is a run
        refused(call("train", *args, f"--workdir={tmp_path / 'new'}"), f"{tmp_path / 'new'}: process {os.getpid()} on ")
    assert not list((tmp_path / "new").iterdir())


def test_a_start_that_was_stopped_is_made_whole(trained, tiny_bert, corpus, tmp_path, monkeypatch):
    """By a kill, or on a full disk: a part of `model/` and no `run.json`."""
    model = tmp_path / "run" / "model"
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], tmp_path / "run", "--config.train.max_steps=0")
    model.mkdir(parents=True)
    (model / ".config.json.tmp").write_text("{")

    def full(path, content):
        if path.name == "tokenizer.json":
            raise UserError(f"{path}: cannot be written: No space left on device")
        write_atomically(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(workdirs, "write_atomically", full)
        refused(call("train", *args), "tokenizer.json: cannot be written: No space left on device")
    assert (model / "config.json").exists() and not (tmp_path / "run" / "run.json").exists()
    done = call("train", *args)
    assert done.returncode == 0, done.stderr
    for path in (trained / "model").iterdir():
        if path.name != "simcse_jax.json":
            assert (model / path.name).read_bytes() == path.read_bytes()


def test_a_checkpoint_is_read_back_bit_for_bit(trained):
    params = load_model(str(trained)).params
    checkpoints = Checkpoints(trained, read_only=True)
    like = jax.tree.map(lambda value: jax.ShapeDtypeStruct(value.shape, value.dtype), params)
    again = checkpoints.restore_params(checkpoints.best, like)
    assert all(np.array_equal(params[name], again[name]) for name in params)
