import json
import os
import shutil
from contextlib import ExitStack

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from support.corpora import in_memory, prepare, rows_of, tokenizer_of
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.corpus import making
from simcse_jax.data.corpus.making import make, shard_name
from simcse_jax.data.corpus.plan import enter, make_plan
from simcse_jax.data.corpus.shared_folder import claimed
from simcse_jax.errors import UserError
from simcse_jax.host import locks as stored
from simcse_jax.host.locks import this_job
from simcse_jax.host.storage import as_path


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def start(tiny_bert, corpus):
    """Makes what is missing of the corpus `triplets` in a folder."""

    def run(folder):
        tokenizer = tokenizer_of(tiny_bert)
        plan = make_plan([str(corpus["csv"])], tokenizer, 40, 16, columns={}, keep_text=True, shard_rows=16)
        enter(folder, plan)
        return make(folder, plan, tokenizer)

    return run


def test_processes_take_what_is_missing_and_the_last_one_completes_it(start, triplets, tmp_path):
    with ExitStack() as other:
        assert other.enter_context(claimed(tmp_path / shard_name(0, 1)))
        assert start(tmp_path) is None  # the other one will
    made = {path.name for path in tmp_path.iterdir()}
    assert shard_name(0, 0) in made and shard_name(0, 2) in made and "corpus.json" not in made
    assert start(tmp_path) is not None
    assert files(tmp_path) == files(triplets)


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_killed_one_goes_on_and_has_the_same_bytes(start, triplets, tmp_path, missing):
    folder = shutil.copytree(triplets, tmp_path / "out")
    for name in ("corpus.json", f"{shard_name(0, missing)}.json", f"{shard_name(0, missing)}.text"):
        (folder / name).unlink()
    shard = folder / shard_name(0, missing)
    shard.replace(folder / f".{shard.name}.tmp")
    (folder / f".{shard.name}.lock").touch()
    assert start(folder) is not None
    assert files(folder) == files(triplets)


SHARD, LAST = shard_name(0, 1), shard_name(0, 2)
DAMAGES = {
    "lost": lambda folder: (folder / SHARD).unlink(),
    "lost with its facts": lambda folder: [(folder / f"{SHARD}{end}").unlink() for end in ("", ".json")],
    "cut": lambda folder: (folder / SHARD).write_bytes(b""),
    "without its text": lambda folder: (folder / f"{SHARD}.text").unlink(),
    "and the last lost": lambda folder: [(folder / name).unlink() for name in (SHARD, LAST)],
    "lost before the manifest": lambda folder: [(folder / name).unlink() for name in (SHARD, "corpus.json")],
    "all but the manifest": lambda folder: [path.unlink() for path in folder.glob("shard-*")],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_shard_that_was_lost_or_cut_is_made_again(damage, start, triplets, tmp_path):
    folder = shutil.copytree(triplets, tmp_path / "out")
    damage(folder)
    assert start(folder) is not None
    assert files(folder) == files(triplets)


def test_a_shard_is_not_made_again_with_other_rows(tiny_bert, tmp_path):
    source, folder = tmp_path / "a.txt", tmp_path / "out"
    source.write_text("a cat\na dog\n")
    prepare(folder, tiny_bert, source)
    written = source.stat().st_mtime_ns
    source.write_text("a dog\na cat\n")
    os.utime(source, ns=(written, written))  # so that only the rows say it
    manifest = (folder / "corpus.json").read_bytes()
    for names in ([shard_name(0, 0)], [shard_name(0, 0), f"{shard_name(0, 0)}.json"]):
        for name in names:
            (folder / name).unlink(missing_ok=True)
        with pytest.raises(UserError, match=f"{names[0]}: cannot be made again, since .*a.txt now has other rows"):
            prepare(folder, tiny_bert, source)
    assert (folder / "corpus.json").read_bytes() == manifest and not (folder / names[0]).exists()


def test_a_source_that_is_changed_meanwhile_ends_without_a_manifest(tiny_bert, tmp_path, monkeypatch):
    class Changing(making.ShardWriter):
        def finish(self, source_rows):
            os.utime(tmp_path / "a.txt", (1, 1))
            return super().finish(source_rows)

    monkeypatch.setattr(making, "ShardWriter", Changing)
    (tmp_path / "a.txt").write_text("a cat\n")
    with pytest.raises(UserError, match=r"a\.txt: was changed since"):
        prepare(tmp_path / "out", tiny_bert, tmp_path / "a.txt")
    assert not (tmp_path / "out" / "corpus.json").exists()


@pytest.mark.parametrize("shard_rows", [1, 7, 20, 40, 100])
def test_shards_of_any_size_have_the_same_rows(shard_rows, tiny_bert, corpus, tmp_path):
    found = prepare(tmp_path, tiny_bert, corpus["csv"], shard_rows=shard_rows)
    assert len(found.manifest.shards) == -(-40 // shard_rows)
    np.testing.assert_array_equal(rows_of(found)[0], in_memory(tiny_bert, corpus["csv"]).input_ids)


@pytest.mark.parametrize("kind", ["tsv", "jsonl", "parquet", "hf", "sts"])
def test_every_kind_of_source_has_the_rows_that_training_reads(kind, tiny_bert, corpus, tmp_path):
    header, *lines = corpus["csv"].read_text().splitlines()
    names, rows = header.split(","), [line.split(",") for line in lines]
    table, path = dict(zip(names, zip(*rows, strict=True), strict=True)), tmp_path / f"data.{kind}"
    if kind == "tsv":
        path.write_text("\n".join("\t".join(row) for row in [names, *rows]) + "\n")
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    elif kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.table(table), path)
    elif kind == "hf":
        pytest.importorskip("datasets").Dataset.from_dict(table).save_to_disk(path)
    else:
        (path / "STS/STSBenchmark").mkdir(parents=True)
        graded = "".join(f"g\tf\ty\t{number}\t1\t{a}\t{b}\n" for number, (a, b, _) in enumerate(rows))
        (path / "STS/STSBenchmark/sts-train.csv").write_text(graded)
        for split in ("dev", "test"):
            (path / f"STS/STSBenchmark/sts-{split}.csv").write_text(graded.splitlines()[0] + "\n")
    name = {"hf": f"hf:{path}", "sts": f"sts:{path}"}.get(kind, str(path))
    found = prepare(tmp_path / "out", tiny_bert, name)
    np.testing.assert_array_equal(rows_of(found)[0], in_memory(tiny_bert, name).input_ids)


def test_prompts_are_before_the_sentences_of_their_columns(tiny_bert, corpus, tmp_path):
    (tmp_path / "with.csv").write_text(
        "\n".join(
            ",".join(f"{prompt}{text}" for prompt, text in zip(("the cat ", "", "a "), line.split(","), strict=True))
            if number
            else line
            for number, line in enumerate(corpus["csv"].read_text().splitlines())
        )
        + "\n"
    )
    found = prepare(tmp_path / "out", tiny_bert, corpus["csv"], prompts=["the cat ", "", "a "])
    np.testing.assert_array_equal(rows_of(found)[0], in_memory(tiny_bert, tmp_path / "with.csv").input_ids)


def test_documents_go_on_over_the_ends_of_shards(tiny_bert, tmp_path):
    lines = [f"the {'cat ' * (n % 9)}{'sat ' * (n // 9)}" if n % 13 else "" for n in range(50)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    one, many = (
        prepare(tmp_path / str(rows), tiny_bert, tmp_path / "a.txt", positives="next_3_sentences", shard_rows=rows)
        for rows in (100, 6)
    )
    np.testing.assert_array_equal(rows_of(one)[0], rows_of(many)[0])
    assert one.num_columns == 2 and len(many.manifest.shards) == 9


def test_a_source_that_cannot_be_used_leaves_nothing(tiny_bert, tmp_path):
    cases = {
        "no blank line between sentences": ("a\nb\nc\n", "next_sentence"),
        "no document has two sentences": ("a\n\nb\n", "next_sentence"),
        "holds no sentences, only 2 blank rows": ("\n\n", ""),
    }
    for number, (message, (text, positives)) in enumerate(cases.items()):
        (tmp_path / f"{number}.txt").write_text(text)
        with pytest.raises(UserError, match=message):
            prepare(tmp_path / f"out{number}", tiny_bert, tmp_path / f"{number}.txt", positives=positives)
        assert not list((tmp_path / f"out{number}").iterdir())


def test_memory_does_not_grow_with_the_rows(tiny_bert, tmp_path, monkeypatch):
    """No more rows are held than are tokenized at a time."""
    seen = []

    class Counted(making.ShardWriter):
        def add(self, columns, labels, origins, texts):
            seen.append(len(origins))
            super().add(columns, labels, origins, texts)

    monkeypatch.setattr(making, "ShardWriter", Counted)
    monkeypatch.setattr(making, "CHUNK", 8)
    (tmp_path / "a.txt").write_text("a cat\n" * 100)
    assert len(prepare(tmp_path / "out", tiny_bert, tmp_path / "a.txt", shard_rows=50)) == 100
    assert max(seen) == 8 and sum(seen) == 100


@NEEDS_GCSFS
def test_a_corpus_in_a_bucket_has_the_bytes_of_one_on_a_disk(start, store, triplets):
    folder = as_path("gs://bucket/corpus")
    assert start(folder) is not None and start(folder) is not None
    assert {name.removeprefix("corpus/"): store.objects[name].data for name in store.names("corpus/")} == files(
        triplets
    )


@NEEDS_GCSFS
def test_a_process_that_was_killed_while_it_finished_a_corpus_in_a_bucket_is_followed_by_another(
    start, store, triplets, monkeypatch
):
    for name, seconds in (("HEARTBEAT", 0.1), ("LOST", 0.3), ("LOOK", 0.05)):
        monkeypatch.setattr(stored, name, seconds)
    for name, content in files(triplets).items():
        if name != "corpus.json":
            store.put(f"corpus/{name}", content)
    store.put("corpus/.corpus.json.lock", this_job().text().encode())
    assert start(as_path("gs://bucket/corpus")) is not None
    assert store.objects["corpus/corpus.json"].data == (triplets / "corpus.json").read_bytes()
