import json
import os
import shutil
from contextlib import ExitStack

import numpy as np
import pyarrow.parquet
import pytest
from support.corpora import in_memory, prepare, rows_of, tokenizer_of
from support.data import raises
from support.later import later
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.corpus import making
from simcse_jax.data.corpus.making import make, shard_name
from simcse_jax.data.corpus.plan import Preparation, enter, make_plan
from simcse_jax.data.corpus.shared_folder import claimed
from simcse_jax.host import locks as stored
from simcse_jax.host.locks import this_job
from simcse_jax.host.storage import as_path

datasets = later("datasets")
FIRST, SECOND, THIRD = (shard_name(0, block) for block in range(3))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def start(tiny_bert, corpus):
    def run(folder):
        tokenizer = tokenizer_of(tiny_bert)
        plan = make_plan([str(corpus["csv"])], tokenizer, 40, Preparation(16, keep_text=True, shard_rows=16))
        enter(folder, plan)
        return make(folder, plan, tokenizer)

    return run


def test_processes_take_what_is_missing_and_the_last_one_completes_it(start, triplets, tmp_path):
    with ExitStack() as other:
        assert other.enter_context(claimed(tmp_path / SECOND))
        assert start(tmp_path) is None  # the other one will
    made = {path.name for path in tmp_path.iterdir()}
    assert {FIRST, THIRD} < made and "corpus.json" not in made
    assert start(tmp_path) is not None
    assert files(tmp_path) == files(triplets)


def killed(folder, name):
    for lost in ("corpus.json", f"{name}.json", f"{name}.text"):
        (folder / lost).unlink()
    (folder / name).replace(folder / f".{name}.tmp")
    (folder / f".{name}.lock").touch()


DAMAGES = {
    "killed at the first": lambda folder: killed(folder, FIRST),
    "killed at the last": lambda folder: killed(folder, THIRD),
    "lost": lambda folder: (folder / SECOND).unlink(),
    "lost with its facts": lambda folder: [(folder / f"{SECOND}{end}").unlink() for end in ("", ".json")],
    "cut": lambda folder: (folder / SECOND).write_bytes(b""),
    "without its text": lambda folder: (folder / f"{SECOND}.text").unlink(),
    "and the last lost": lambda folder: [(folder / name).unlink() for name in (SECOND, THIRD)],
    "lost before the manifest": lambda folder: [(folder / name).unlink() for name in (SECOND, "corpus.json")],
    "all but the manifest": lambda folder: [path.unlink() for path in folder.glob("shard-*")],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_shard_that_was_lost_or_cut_is_made_again_with_the_same_bytes(damage, start, triplets, tmp_path):
    folder = shutil.copytree(triplets, tmp_path / "out")
    damage(folder)
    assert start(folder) is not None
    assert files(folder) == files(triplets)


def test_every_source_has_the_rows_that_training_reads_also_with_prompts_and_documents(tiny_bert, corpus, tmp_path):
    names, *rows = (line.split(",") for line in corpus["csv"].read_text().splitlines())
    table, sts = dict(zip(names, zip(*rows, strict=True), strict=True)), tmp_path / "sts/STS/STSBenchmark"
    (tmp_path / "a.tsv").write_text("\n".join("\t".join(row) for row in [names, *rows]) + "\n")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    pyarrow.parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    datasets.Dataset.from_dict(table).save_to_disk(tmp_path / "hub")
    sts.mkdir(parents=True)
    graded = [f"g\tf\ty\t{number}\t1\t{a}\t{b}\n" for number, (a, b, _) in enumerate(rows)]
    for split, lines in (("train", graded), ("dev", graded[:1]), ("test", graded[:1])):
        (sts / f"sts-{split}.csv").write_text("".join(lines))
    files = [f"{tmp_path}/a.{kind}" for kind in ("tsv", "jsonl", "parquet")]
    for name in (*files, f"hf:{tmp_path}/hub", f"sts:{tmp_path}/sts"):
        found = prepare(tmp_path / f"out {name.replace('/', ' ')}", tiny_bert, name)
        np.testing.assert_array_equal(rows_of(found)[0], in_memory(tiny_bert, name).input_ids)
    header, *lines = corpus["csv"].read_text().splitlines()
    prompted = (f"the cat {a},{b},a {c}" for a, b, c in (line.split(",") for line in lines))
    (tmp_path / "with.csv").write_text("\n".join([header, *prompted, ""]))
    found = prepare(tmp_path / "out", tiny_bert, corpus["csv"], prompts=["the cat ", "", "a "])
    np.testing.assert_array_equal(rows_of(found)[0], in_memory(tiny_bert, tmp_path / "with.csv").input_ids)
    lines = [f"the {'cat ' * (n % 9)}{'sat ' * (n // 9)}" if n % 13 else "" for n in range(50)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    options = {"positives": "next_3_sentences"}
    one, many = (prepare(tmp_path / str(n), tiny_bert, tmp_path / "a.txt", shard_rows=n, **options) for n in (100, 6))
    np.testing.assert_array_equal(rows_of(one)[0], rows_of(many)[0])
    assert one.num_columns == 2 and len(many.manifest.shards) == 9


@NEEDS_GCSFS
def test_a_corpus_in_a_bucket_has_the_bytes_of_one_on_a_disk_also_after_a_kill(start, store, triplets, monkeypatch):
    for name, seconds in (("HEARTBEAT", 0.1), ("LOST", 0.3), ("LOOK", 0.05)):
        monkeypatch.setattr(stored, name, seconds)
    folder = as_path("gs://bucket/corpus")
    for _ in range(2):
        assert start(folder) is not None
        store.put("corpus/.shard-00000-00000.lock", b"")
        assert start(folder) is not None
        found = {name.removeprefix("corpus/"): store.objects[name].data for name in store.names("corpus/")}
        assert found == files(triplets)
        store.delete("corpus/corpus.json")
        store.put("corpus/.corpus.json.lock", this_job().text().encode())


def test_no_more_rows_are_held_than_are_tokenized_and_changed_or_blank_sources_are_named(
    tiny_bert, tmp_path, monkeypatch
):
    seen, real = [], making.ShardWriter.add
    monkeypatch.setattr(making, "CHUNK", 8)
    monkeypatch.setattr(making.ShardWriter, "add", lambda *added: seen.append(len(added[3])) or real(*added))
    (tmp_path / "a.txt").write_text("a cat\n" * 100)
    assert len(prepare(tmp_path / "many", tiny_bert, tmp_path / "a.txt", shard_rows=50)) == 100
    assert max(seen) == 8 and sum(seen) == 100
    source, folder = tmp_path / "a.txt", tmp_path / "out"
    source.write_text("a cat\na dog\n")
    prepare(folder, tiny_bert, source)
    written = source.stat().st_mtime_ns
    source.write_text("a dog\na cat\n")
    os.utime(source, ns=(written, written))  # so that only the rows say it
    manifest = (folder / "corpus.json").read_bytes()
    for names in ([FIRST], [FIRST, f"{FIRST}.json"]):
        for name in names:
            (folder / name).unlink(missing_ok=True)
        raises(f"{FIRST}: cannot be made again", prepare, folder, tiny_bert, source)
    assert (folder / "corpus.json").read_bytes() == manifest and not (folder / FIRST).exists()
    (tmp_path / "a.txt").write_text("\n\n")
    raises("holds no sentences, only 2 blank rows", prepare, tmp_path / "blank", tiny_bert, tmp_path / "a.txt")
    assert not list((tmp_path / "blank").iterdir())

    class Changing(making.ShardWriter):
        def finish(self, source_rows):
            os.utime(tmp_path / "a.txt", (1, 1))
            return super().finish(source_rows)

    monkeypatch.setattr(making, "ShardWriter", Changing)
    (tmp_path / "a.txt").write_text("a cat\n")
    raises("a.txt: was changed since", prepare, tmp_path / "changed", tiny_bert, tmp_path / "a.txt")
    assert not (tmp_path / "changed" / "corpus.json").exists()
