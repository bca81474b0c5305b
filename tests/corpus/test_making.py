import json
import shutil
from contextlib import ExitStack

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from support.corpora import in_memory, prepare, rows_of, tokenizer_of
from support.object_store import NEEDS_GCSFS

from simcse_jax.corpus import making
from simcse_jax.corpus.claims import claimed
from simcse_jax.corpus.making import make, shard_name
from simcse_jax.corpus.plan import enter, make_plan
from simcse_jax.errors import UserError
from simcse_jax.storage import as_path


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
    (folder / "plan.json").write_bytes(plan_of(start, tmp_path))
    assert start(folder) is not None
    assert files(folder) == files(triplets)


def plan_of(start, tmp_path) -> bytes:
    """The plan that a corpus's folder has until it is complete."""
    with ExitStack() as others:
        for block in range(3):
            others.enter_context(claimed(tmp_path / "begun" / shard_name(0, block)))
        assert start(tmp_path / "begun") is None
    return (tmp_path / "begun" / "plan.json").read_bytes()


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


def test_a_source_that_cannot_be_used_ends_without_a_manifest(tiny_bert, tmp_path):
    cases = {
        "no blank line between sentences": ("a\nb\nc\n", "next_sentence"),
        "no document has two sentences": ("a\n\nb\n", "next_sentence"),
        "holds no sentences, only 2 blank rows": ("\n\n", ""),
    }
    for number, (message, (text, positives)) in enumerate(cases.items()):
        (tmp_path / f"{number}.txt").write_text(text)
        with pytest.raises(UserError, match=message):
            prepare(tmp_path / f"out{number}", tiny_bert, tmp_path / f"{number}.txt", positives=positives)
        assert [path.name for path in (tmp_path / f"out{number}").iterdir()] == ["plan.json"]
        with pytest.raises(UserError, match=message):  # the same, of several shards
            prepare(
                tmp_path / f"many{number}", tiny_bert, tmp_path / f"{number}.txt", positives=positives, shard_rows=1
            )
        assert not (tmp_path / f"many{number}" / "corpus.json").exists()


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
