"""Runs on prepared corpora."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from support import call, finish, lines, refused, start_processes, train_args, without_speed, write_model
from support.corpora import prepare, tokenizer_of
from support.object_store import NEEDS_GCSFS
from support.resuming import trained_and_resumed

from simcse_jax import training
from simcse_jax.config import default_config
from simcse_jax.data.batches import Batches
from simcse_jax.data.draws import ORDER, permutation
from simcse_jax.errors import UserError
from simcse_jax.training.prepared import open_prepared
from simcse_jax.training.run import train_and_evaluate
from simcse_jax.training.sweeps.together import train_together


@pytest.fixture(scope="module")
def prepared(shared, tiny_bert, corpus):
    """`corpus["csv"]`, prepared: what `tests/corpus` calls `triplets`."""
    return shared("prepared-triplets", lambda folder: prepare(folder, tiny_bert, corpus["csv"], keep_text=True))


def numbers(workdir) -> list[dict]:
    """The metrics, without times."""
    return without_speed(lines(workdir))


def close(found, expected, tolerance=1e-6):
    assert [line.keys() for line in found] == [line.keys() for line in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(list(one.values()), list(other.values()), rtol=tolerance, atol=tolerance)


def test_a_run_is_that_of_the_same_rows_in_memory_in_the_same_order(prepared, tiny_bert, corpus, tmp_path, monkeypatch):
    short = ("--config.train.max_steps=4", "--config.eval.every=2", "--config.train.unpad=False")
    done = call("train", *train_args(tiny_bert, prepared, corpus["dev"], tmp_path / "prepared", *short))
    assert done.returncode == 0 and f"{prepared}: 40 triplets, prepared\n" in done.stdout, done.stderr

    def order(batches, epoch):
        return permutation(40, batches._seed, ORDER, epoch)(np.arange(40))

    monkeypatch.setattr(Batches, "_examples", order)
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], tmp_path / "memory", *short)
    assert call("train", *args).returncode == 0
    close(numbers(tmp_path / "prepared"), numbers(tmp_path / "memory"))
    run, other = (json.loads((tmp_path / name / "run.json").read_text()) for name in ("prepared", "memory"))
    assert run["examples"] == other["examples"] == 40
    exported = call("export", "--workdir", tmp_path / "prepared", "--output", tmp_path / "exported")
    assert exported.returncode == 0, exported.stderr
    assert run["sha256"]["data.train"] == json.loads((prepared / "corpus.json").read_text())["sha256"]


@pytest.mark.slow
def test_a_batch_of_the_longest_rows_is_not_cut(tiny_bert, corpus, tmp_path):
    order = permutation(100, 42, ORDER, 0)(np.arange(100))
    words = np.ones(100, int)
    words[order[16:24]] = 40  # the third batch
    (tmp_path / "text.txt").write_text("".join("the cat sat " * (count // 3 + 1) + "\n" for count in words))
    prepare(tmp_path / "corpus", tiny_bert, tmp_path / "text.txt")
    for name, unpad in (("with", "False"), ("without", "True")):
        args = train_args(tiny_bert, tmp_path / "corpus", corpus["dev"], tmp_path / name, "--config.train.max_steps=4")
        done = call("train", *args, f"--config.train.unpad={unpad}", "--config.train.log_every=1")
        assert done.returncode == 0, done.stderr
    assert "compiled the step for most batches" in done.stdout and "for the longest batches" in done.stdout
    close(numbers(tmp_path / "without"), numbers(tmp_path / "with"), 1e-5)


def short_run(prepared, model, corpus):
    config = default_config()
    config.model.init_from, config.data.train, config.eval.data = str(model), str(prepared), str(corpus["dev"])
    config.data.max_length, config.train.batch_size, config.train.max_steps = 16, 8, 4
    config.eval.every, config.train.log_every, config.parallel.devices = 2, 2, 1
    return config


def test_what_does_not_fit_the_corpus_is_refused(prepared, tiny_bert, corpus, tmp_path):
    other = write_model(tmp_path / "roberta", "roberta")
    cases = {
        "--config.data.max_length=32": ("config.data.max_length=32", "prepared with 16"),
        f"--config.model.init_from={other}": ("another tokenizer", "--model"),
        "--config.data.columns.anchor=sent0": ("config.data.columns.anchor", "--columns"),
        "--config.data.augment.name=crop": ("config.data.augment.name", "--augment"),
        "--config.data.mixed=True": ("config.data.mixed", "--mixed"),
        "--config.data.positives=all": ("config.data.positives", "--positives"),
        "--config.data.subsample=41": ("data.subsample=41", "from 1 to 40"),
        "--config.train.batch_size=48": ("40 examples are fewer than one batch",),
        "--config.data.positives=spans": ("config.data.positives", "in memory", "the files themselves"),
        f"--config.data.train={prepared},{corpus['csv']}": (f"{prepared} is a prepared corpus", "prepare that too"),
        f"--config.data.train={corpus['csv']},{prepared}": (f"{prepared} is a prepared corpus", "prepare that too"),
    }
    for argument, parts in cases.items():
        args = train_args(tiny_bert, prepared, corpus["dev"], tmp_path / "run")
        refused(call("train", *args, argument), *parts)
        assert not (tmp_path / "run").exists()
    labels = ["--config.objective.softmax_nli.weight=1.0", "--config.objective.info_nce.weight=0.0"]
    refused(call("train", *args, *labels, "--config.model.pooler=avg"), "without labels", "--labels")
    prepare(tmp_path / "tokens", tiny_bert, corpus["csv"])
    args = train_args(
        tiny_bert, tmp_path / "tokens", corpus["dev"], tmp_path / "run", "--config.data.equal_texts=left_out"
    )
    refused(call("train", *args), "config.data.equal_texts=left_out", "without its text", "prepare it with --keep-text")
    args[-1] = "--config.data.no_duplicates=True"
    refused(call("train", *args), "config.data.no_duplicates", "without its text", "prepare it with --keep-text")


def test_rows_that_lack_columns_are_refused_where_they_would_count(tiny_bert, corpus, tmp_path):
    prepare(tmp_path / "mixed", tiny_bert, f"{corpus['txt']},{corpus['csv']}", mixed=True)
    prepare(tmp_path / "alike", tiny_bert, corpus["csv"], mixed=True)
    projector = ["--config.projector.widths=2D,D", "--config.projector.objectives=info_nce,"]
    args = train_args(tiny_bert, tmp_path / "mixed", corpus["dev"], tmp_path / "run", *projector)
    refused(call("train", *args), f"{tmp_path / 'mixed'}, prepared with --mixed", "batch norm")
    assert not (tmp_path / "run").exists()
    config = short_run(tmp_path / "mixed", tiny_bert, corpus)
    config.objective.replaced_token_detection.weight = 0.1
    with pytest.raises(UserError, match=r"prepared with --mixed: objective\.replaced_token_detection"):
        open_prepared(config, tokenizer_of(tiny_bert))
    args = train_args(tiny_bert, tmp_path / "alike", corpus["dev"], tmp_path / "run", *projector)
    assert call("train", *args, "--config.train.max_steps=1").returncode == 0


def test_a_shard_that_is_missing_cut_or_changed_ends_the_run(prepared, tiny_bert, corpus, tmp_path):
    def damaged(change, *parts):
        folder = shutil.copytree(prepared, tmp_path / "copy", dirs_exist_ok=True)
        change(folder / "shard-00000-00000")
        args = train_args(tiny_bert, folder, corpus["dev"], tmp_path / "run")
        refused(call("train", *args), "shard-00000-00000", *parts)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)

    damaged(lambda path: path.unlink(), "missing")
    damaged(lambda path: path.write_bytes(b""), "has 0 bytes")
    damaged(lambda path: path.write_bytes(path.read_bytes().replace(b"\2\0", b"\4\0")), "was changed")
    (tmp_path / "copy" / "corpus.json").replace(tmp_path / "copy" / "plan.json")
    refused(
        call("train", *train_args(tiny_bert, tmp_path / "copy", corpus["dev"], tmp_path / "run")), "is not complete"
    )


def test_several_corpora_that_do_not_fit_are_told_what_helps(prepared, tiny_bert, corpus, tmp_path):
    labelled = tmp_path / "labelled.csv"
    labelled.write_text("sent0,sent1,label\n" + "a cat,a dog,0\n" * 9)
    prepare(tmp_path / "short", tiny_bert, corpus["csv"], max_length=12)
    prepare(tmp_path / "labelled", tiny_bert, labelled, labels=True)
    prepare(tmp_path / "pairs", tiny_bert, labelled)
    prepare(tmp_path / "lines", tiny_bert, corpus["txt"])
    prepare(tmp_path / "wide", tiny_bert, corpus["txt"], vocabulary=1 << 20)  # the same tokenizer, four bytes a token
    one_source = "--config.data.batching=one_source"

    def run(*names, more=()):
        data = ",".join(str(tmp_path / name) for name in names)
        return call("train", *train_args(tiny_bert, data, corpus["dev"], tmp_path / "run", *more))

    apart = "or set data.batching=one_source"
    for name in ("short", "wide"):  # batches of one source each are refused too, or were not asked for
        done = run(prepared, name) if name == "short" else run("lines", name)
        refused(done, f"{tmp_path / name} were prepared with another --m", "prepare them alike")
        assert apart not in done.stderr
    refused(run(prepared, "short", more=[one_source]), f"{tmp_path / 'short'} was prepared with 12")
    refused(run("pairs", "labelled"), "were prepared with another --labels each", apart)
    assert run("pairs", "labelled", more=[one_source, "--config.train.max_steps=1"]).returncode == 0
    shutil.rmtree(tmp_path / "run")
    sizes = ["--config.train.batch_size=16", "--config.parallel.devices=1"]
    refused(run(prepared, "pairs", more=[one_source, *sizes]), f"error: {tmp_path / 'pairs'}: 9 examples are fewer")
    unused = "--config.data.lengths.positive=12"
    refused(run("lines", more=[unused]), f"{unused[2:]}: {tmp_path / 'lines'} has one column of sentences")
    refused(run("lines", "wide", more=[unused, one_source]), f"{unused[2:]}: {tmp_path / 'lines'} has one column")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("batching", "copied"), [("", [True, True]), ("one_source", [False, True])])
def test_copies_have_the_texts_that_are_compared(batching, copied, tiny_bert, corpus, tmp_path, monkeypatch):
    """Those of sentences alone too, where their rows are in batches with pairs."""
    folders, wanted = {"lines": corpus["txt"], "triplets": corpus["csv"]}, []
    for name, data in folders.items():
        prepare(tmp_path / name, tiny_bert, data, keep_text=True)

    def local_copy(folder, cache, is_first, texts):
        wanted.append(texts)
        return Path(folder)

    monkeypatch.setattr(training.prepared, "is_remote", lambda folder: True)
    monkeypatch.setattr(training.prepared, "local_copy", local_copy)
    config = short_run(",".join(str(tmp_path / name) for name in folders), tiny_bert, corpus)
    config.data.local_cache, config.data.mixed, config.data.batching = str(tmp_path), not batching, batching
    opened = open_prepared(config, tokenizer_of(tiny_bert))
    assert wanted == copied and [each.texts for each in opened.values()] == copied[-len(opened) :]


@NEEDS_GCSFS
def test_a_corpus_in_a_bucket_needs_a_local_cache(store, prepared, tiny_bert, corpus, tmp_path):
    for path in prepared.iterdir():
        store.put(f"corpus/{path.name}", path.read_bytes())
    args = train_args(tiny_bert, "gs://bucket/corpus", corpus["dev"], tmp_path / "run")
    refused(call("train", *args), "gs://bucket/corpus", "set data.local_cache")
    refused(call("train", *args, "--config.data.train=gs://none/corpus"), "gs://none/corpus")
    refused(call("train", *args, "--config.data.train=gs://bucket/none"), "gs://bucket/none: no corpus.json there")
    assert not (tmp_path / "run").exists()
    done = call("train", *args, f"--config.data.local_cache={tmp_path / 'ssd'}", "--config.train.max_steps=1")
    assert done.returncode == 0 and "40 triplets" in done.stdout, done.stderr
    assert len(list((tmp_path / "ssd").glob("corpus-*/shard-*"))) == 3


@pytest.mark.slow
def test_a_run_that_was_killed_ends_with_the_same_bits(prepared, tiny_bert, corpus, tmp_path):
    config = short_run(prepared, tiny_bert, corpus)
    config.checkpoint.keep_every = 1
    trained_and_resumed(config, tmp_path)


@pytest.mark.slow
def test_runs_that_are_trained_together_are_as_each_alone(prepared, tiny_bert, corpus, tmp_path, capsys):
    configs = [short_run(prepared, tiny_bert, corpus) for _ in range(2)]
    folders = [tmp_path / str(seed) for seed in (1, 2)]
    for seed, (config, folder) in enumerate(zip(configs, folders, strict=True), 1):
        config.seed = seed
        train_and_evaluate(config, str(tmp_path / f"alone {seed}"))
        folder.mkdir()
    for config in configs:
        config.eval.encoder = "better"  # of two, and there is one
    capsys.readouterr()
    assert train_together(configs, folders, tmp_path / "group") == []
    assert capsys.readouterr().out.count("config.eval.encoder=better has no effect with the other fields") == 1
    losses = {
        path.name: [line["loss"] for line in lines(path) if "loss" in line]
        for path in (*folders, *(tmp_path / f"alone {seed}" for seed in (1, 2)))
    }
    for seed in (1, 2):
        np.testing.assert_allclose(losses[str(seed)], losses[f"alone {seed}"], rtol=1e-4)
    assert losses["1"] != losses["2"]


@pytest.mark.slow
def test_one_two_and_four_processes_train_the_same(prepared, tiny_bert, corpus, tmp_path):
    found = {}
    for count in (1, 2, 4):
        workdir = tmp_path / str(count)
        args = train_args(tiny_bert, prepared, corpus["dev"], workdir, "--config.parallel.devices=0")
        for code, out, err in finish(start_processes(args, count=count, devices=4 // count)):
            assert code == 0, out + err
        found[count] = numbers(workdir)
    close(found[2], found[1], 1e-5)
    close(found[4], found[1], 1e-5)
