"""The run, through the command line, as a user starts it."""

import json
import os
import shutil
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from support import call, run, train_args

from simcse_jax.errors import UserError
from simcse_jax.evaluation import postprocess, sts, transfer
from simcse_jax.evaluation.evaluator import by_task
from simcse_jax.huggingface.load import load
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.loading import load_model
from simcse_jax.simcse import SimCSE
from simcse_jax.training.single import SingleRun
from simcse_jax.training.step import METRICS


def lines(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def refused(done, *parts):
    """Exit code 2, and one line that has all the parts."""
    assert done.returncode == 2, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(told) == 1 and "Traceback" not in done.stderr, done.stderr
    for part in parts:
        assert str(part) in told[0], told[0]


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
    done = call("main", *again, "--config.train.log_every=1", "--config.parallel.devices=0")
    assert done.returncode == 0, done.stderr
    assert "resuming at step 8 of 8" in done.stdout
    assert files() == before


def test_a_workdir_that_belongs_to_another_config_or_other_data(trained, tiny_bert, corpus):
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], trained, "--config.model.mlp=always")
    refused(call("main", *args, "--config.seed=1"), "another config", "seed was 42, is 1", trained)
    for kind, field in (("csv", "data.train"), ("dev", "eval.data")):
        original = corpus[kind].read_text()
        corpus[kind].write_text(original.replace("cat", "dog"))
        try:
            refused(call("main", *args), f"what {field}=", "has changed since")
        finally:
            corpus[kind].write_text(original)


def test_a_run_of_a_version_that_knew_fewer_fields_had_their_defaults(trained, tiny_bert, corpus, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "run")
    run_json = json.loads((workdir / "run.json").read_text())
    for field in ("transfer", "postprocess", "postprocess_data", "postprocess_dimensions"):
        del run_json["config"]["eval"][field]
    (workdir / "run.json").write_text(json.dumps(run_json))
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], workdir, "--config.model.mlp=always")
    assert call("main", *args).returncode == 0
    whitening = ("--config.eval.postprocess=whitening", "--config.eval.postprocess_data=target")
    refused(call("main", *args, *whitening), "another config: eval.postprocess was '', is 'whitening'")


NOTHING = ("--config.train.epochs=0", "--config.train.max_steps=0", "--config.model.mlp=none")


def test_what_trains_nothing_has_no_head_of_chance(tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", *NOTHING, "--config.model.mlp=always")
    refused(call("main", *args), "config.model.mlp=always", "no such head of its own")


def test_a_run_that_trains_nothing_scores_what_it_starts_from(tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, "no/such.txt", corpus["dev"], tmp_path / "run", *NOTHING)
    done = call("main", *args, "--config.parallel.devices=3")
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
    done = call("main", *args)
    assert done.returncode == 0 and "resuming at step 0 of 0" in done.stdout
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result
    assert len(lines(tmp_path / "run")) == 1
    without_scores = train_args(tiny_bert, "no/such.txt", "", tmp_path / "unscored", *NOTHING)
    assert call("main", *without_scores).returncode == 0
    assert load_model(str(tmp_path / "unscored")).pooler == "cls"


@pytest.mark.parametrize("method, data", [("whitening", "target"), ("whitening", "csv"), ("flow", "target")])
def test_post_processing_stands_before_the_final_scores_alone(method, data, tiny_bert, corpus, tmp_path):
    source = str(corpus.get(data, data))
    fields = (f"--config.eval.postprocess={method}", f"--config.eval.postprocess_data={source}")
    fields += ("--config.eval.postprocess_dimensions=6",) if method == "whitening" else ()
    done = call("main", *train_args(tiny_bert, "no/such.txt", corpus["dev"], tmp_path / "run", *NOTHING, *fields))
    assert done.returncode == 0, done.stderr
    assert f"development scores behind {method} " in done.stdout
    encode = SimCSE(str(tiny_bert), pooler="cls").encode
    tasks = {"dev": sts.read_graded_pairs(corpus["dev"])}
    fit_on = postprocess.read(method, source, 6 if method == "whitening" else 0)
    expected = by_task(sts.evaluate, postprocess.applied(encode, fit_on, 42), tasks)["dev"]["spearman"]
    raw = sts.evaluate(encode, tasks)["dev"]["spearman"]
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["dev"]["spearman"] == pytest.approx(expected, abs=0.5) and abs(expected - raw) > 1
    assert lines(tmp_path / "run")[0]["eval/dev"] == pytest.approx(raw, abs=1e-2)


def write_senteval(folder, corpus):
    """A SentEval folder with STS-B of the little corpus, ten pairs each for development and test."""
    benchmark = folder / "STS" / "STSBenchmark"
    benchmark.mkdir(parents=True)
    rows = [line.split("\t") for line in corpus["dev"].read_text().splitlines()[1:]]
    for split, part in (("dev", rows[:10]), ("test", rows[10:])):
        content = "".join(f"main\tfile\t2012\t{i}\t{s}\t{a}\t{b}\n" for i, (a, b, s) in enumerate(part))
        (benchmark / f"sts-{split}.csv").write_text(content)
    return folder


def test_transfer_tasks_are_scored_at_the_end_where_asked_for(tiny_bert, corpus, tmp_path):
    senteval = write_senteval(tmp_path / "senteval", corpus)
    (senteval / "CR").mkdir()
    words = corpus["txt"].read_text().splitlines()
    (senteval / "CR" / "custrev.pos").write_text("\n".join(words[:20]) + "\n")
    (senteval / "CR" / "custrev.neg").write_text("\n".join(words[20:]) + "\n")
    fields = ("eval.transfer=True", "eval.tasks=STSBenchmark", "eval.postprocess=whitening", "eval.postprocess_data")
    args = train_args(tiny_bert, "no/such.txt", senteval, tmp_path / "run", *NOTHING)
    args += [f"--config.{field}" for field in fields[:3]] + [f"--config.{fields[3]}={corpus['csv']}"]
    done = call("main", *args)
    assert done.returncode == 0, done.stderr
    assert "MR, SUBJ, MPQA, SST2, TREC, MRPC not there and left out" in done.stdout
    assert "transfer behind whitening (accuracy):" in done.stdout
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(result) == {"STSBenchmark", "average", "development", "transfer"}  # no average: six tasks are missing
    encode = SimCSE(str(tiny_bert), pooler="cls").encode
    embed = postprocess.applied(encode, postprocess.read("whitening", str(corpus["csv"])))
    tasks, _ = transfer.read(str(senteval), ["CR"])
    accuracy = by_task(transfer.evaluate, embed, tasks)["CR"]["accuracy"]
    assert result["transfer"]["CR"]["accuracy"] == pytest.approx(accuracy, abs=5.1)  # two of forty sentences
    development = sts.read(str(senteval), ["STSBenchmark"], "dev")[0]
    expected = by_task(sts.evaluate, embed, development)["STSBenchmark"]["spearman"]
    assert result["development"] == pytest.approx(expected, abs=2)


def test_mistakes_of_scoring_are_told_before_anything_is_compiled(tiny_bert, corpus, tmp_path):
    (tmp_path / "few.txt").write_text("a cat\na dog\n")
    whitening = "--config.eval.postprocess=whitening"
    cases = {
        (whitening, "--config.eval.postprocess_data=no/such.txt"): "eval.postprocess_data: no/such.txt: no such file",
        (whitening, f"--config.eval.postprocess_data={tmp_path}/few.txt"): "the source has 2 different sentences; "
        "whitening of 32 dimensions needs 33 or more",
        (
            whitening,
            "--config.eval.postprocess_data=target",
            "--config.eval.postprocess_dimensions=33",
        ): "33 dimensions cannot be kept of the 32",
        ("--config.eval.transfer=True",): "dev.tsv is a file, but eval.transfer needs SentEval's",
        (
            "--config.eval.transfer=True",
            f"--config.eval.data={write_senteval(tmp_path / 'senteval', corpus)}",
        ): "no MR, CR, SUBJ, MPQA, SST2, TREC, MRPC there",
        ("--config.eval.transfer=True", "--config.eval.data="): "config.eval.transfer=True: eval.data is empty",
    }
    for fields, message in cases.items():
        done = call("main", *train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", *fields))
        refused(done, message)
        assert not (tmp_path / "run").exists() and "compiled" not in done.stdout


def test_the_epochs_drop_the_last_partial_batch_and_blank_lines_are_told(tiny_bert, corpus, tmp_path):
    (tmp_path / "train.txt").write_text("\n".join(["the cat sat", "", "a dog ran", "  "] * 10) + "\n")
    fields = ("train.max_steps=0", "train.batch_size=6", "train.epochs=2", "checkpoint.keep_every=2", "eval.every=5")
    args = train_args(tiny_bert, tmp_path / "train.txt", corpus["dev"], tmp_path / "run")
    done = call("main", *args, *(f"--config.{field}" for field in fields))
    assert done.returncode == 0, done.stderr
    assert "20 sentences, 20 blank rows skipped" in done.stdout
    assert max(line["step"] for line in lines(tmp_path / "run")) == 2 * (20 // 6)
    assert {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()} >= {"2", "4", "6"}
    assert Checkpoints(tmp_path / "run", read_only=True).best in (5, 6)  # those that were evaluated


def test_a_sent_eval_folder_chooses_on_sts_b_dev_and_ends_with_the_paper_s_table(tiny_bert, corpus, tmp_path):
    senteval = write_senteval(tmp_path / "senteval", corpus)
    args = train_args(tiny_bert, corpus["txt"], senteval, tmp_path / "run")
    done = call("main", *args, "--config.eval.tasks=STS12,STSBenchmark", "--config.train.max_steps=3")
    assert done.returncode == 0, done.stderr
    assert "STS12 not there and left out" in done.stdout
    scored = {line["step"]: line["eval/stsb_dev"] for line in lines(tmp_path / "run") if "eval/stsb_dev" in line}
    assert set(scored) == {0, 3}
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert set(result) == {"STSBenchmark"} and result["STSBenchmark"]["pairs"] == 10  # no average: STS12 is missing
    table = done.stdout.splitlines()[-3:]
    assert [cell.strip() for cell in table[0].split("|")] == ["STS12", "STS-B", "Avg."]
    figures = ["-", f"{result['STSBenchmark']['spearman']:.2f}", "-"]
    assert [cell.strip() for cell in table[2].split("|")] == figures


def test_a_model_trained_on_many_devices_is_read_on_one(tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], "", tmp_path / "run", "--config.parallel.devices=8")
    done = call("main", *args, "--config.train.max_steps=1")
    assert done.returncode == 0, done.stderr
    done = run("evaluate", "--model", tmp_path / "run", "--data", corpus["dev"])
    assert done.returncode == 0, done.stderr


def test_keeps_what_training_changed_and_only_there(trained, tiny_bert):
    """The head trains with the encoder; the rows of tokens that never stood in a batch keep their values."""
    before, after = load(str(tiny_bert)).params, load_model(str(trained)).params
    assert set(after) == set(before) | {"head.kernel", "head.bias"}
    assert all(np.abs(after[name] - before[name]).max() > 0 for name in before)
    unused = "encoder.embeddings.type.embedding"
    np.testing.assert_array_equal(after[unused][1], before[unused][1])


def test_a_workdir_is_a_model_to_start_from(trained, tiny_bert, corpus, tmp_path):
    args = train_args(trained, corpus["csv"], corpus["dev"], tmp_path / "run", "--config.model.mlp=always")
    done = call("main", *args, "--config.train.max_steps=1")
    assert done.returncode == 0, done.stderr
    assert "its own head is trained further" in done.stdout


def test_a_loss_that_is_not_finite_stops_the_run(tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", "--config.eval.every=1")
    done = call("main", *args, "--config.train.learning_rate=1e30", "--config.train.log_every=1")
    refused(done, "step 1", "not finite", "no checkpoint was saved yet", "train.learning_rate")
    assert [line["step"] for line in lines(tmp_path / "run")] == [0, 1]
    model = shutil.copytree(tiny_bert, tmp_path / "model")
    from safetensors.numpy import load_file, save_file

    tensors = load_file(model / "model.safetensors")
    tensors["encoder.layer.0.output.dense.bias"][:] = np.nan
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    done = call("main", *train_args(model, corpus["txt"], "", tmp_path / "nan"))
    refused(done, "step 1: the loss is nan")


def test_the_first_step_that_went_wrong_is_named_with_the_last_good_checkpoint():
    checkpoints = SimpleNamespace(latest=4, close=lambda: None)
    good = dict.fromkeys(METRICS, np.float32(1))
    steps = [(5, good), (6, good | {"gradient_norm": np.inf}), (7, good)]
    run = SingleRun(None, None, None, {}, checkpoints, None, pending=steps)
    with pytest.raises(UserError, match=r"step 6: .*norm inf; the last good checkpoint is of step 4"):
        run.fetch()


BAD_DATA = {
    "missing": (None, "no such file"),
    "empty": (b"", "holds no sentences"),
    "blank": (b"\n \n", "only 2 blank rows"),
    "latin1": ("a cat\nGr\u00fc\u00dfe\n".encode("latin-1"), "line 2 is not UTF-8"),
    "few": (b"a cat\na dog\n", "2 examples are fewer than one batch"),
}


@pytest.mark.parametrize("name", BAD_DATA)
def test_bad_training_data_leaves_no_workdir(name, tiny_bert, corpus, tmp_path):
    content, message = BAD_DATA[name]
    if content is not None:
        (tmp_path / "train.txt").write_bytes(content)
    done = call("main", *train_args(tiny_bert, tmp_path / "train.txt", corpus["dev"], tmp_path / "run"))
    refused(done, tmp_path / "train.txt", message)
    assert not (tmp_path / "run").exists()


def test_other_mistakes_leave_no_workdir_either(tiny_bert, corpus, tmp_path):
    (tmp_path / "short.csv").write_text("sent0,sent1\na cat,a dog\nalone\n")
    cases = {
        "--config.sede=1": ("no such field", "seed"),
        "--config.model.init_from=/no/such": ("/no/such", "no such folder"),
        f"--config.data.train={tmp_path}/short.csv": ("short.csv: line 3", "1 columns"),
        "--config.eval.data=/no/such": ("config.eval.data", "/no/such"),
        "--config.data.max_length=65": ("data.max_length=65", "at most 64"),
        "--config.objective.info_nce.hard_negative_weight=2": (
            "hard_negative_weight=2.0",
            "no column of hard negatives",
        ),
        "--config.model.num_layers=5": ("model.num_layers=5", "2 layers"),
    }
    for argument, parts in cases.items():
        refused(call("main", *train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run"), argument), *parts)
        assert not (tmp_path / "run").exists()
    (tmp_path / "file").write_text("")
    refused(call("main", *train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "file")), "is a file")


def test_a_batch_that_does_not_divide_names_the_nearest_that_do(tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", "--config.parallel.devices=3")
    refused(call("main", *args), "train.batch_size=8", "6 and 9")
    refused(call("main", *args, "--config.parallel.devices=9"), "parallel.devices=9", "there are 8")


def test_a_foreign_folder_is_not_written_to(tiny_bert, corpus, tmp_path):
    (tmp_path / "run" / "model").mkdir(parents=True)
    (tmp_path / "run" / "model" / "precious").write_text("mine")
    refused(call("main", *train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run")), "no run.json")
    assert (tmp_path / "run" / "model" / "precious").read_text() == "mine"


def test_a_checkpoint_is_read_back_bit_for_bit(trained):
    params = load_model(str(trained)).params
    checkpoints = Checkpoints(trained, read_only=True)
    like = jax.tree.map(lambda value: jax.ShapeDtypeStruct(value.shape, value.dtype), params)
    again = checkpoints.restore_params(checkpoints.best, like)
    assert all(np.array_equal(params[name], again[name]) for name in params)
