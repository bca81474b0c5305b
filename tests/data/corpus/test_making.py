import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow.parquet
import pytest
from support.corpora import in_memory, prepare, rows_of, tokenizer_of
from support.data import raises
from support.later import later
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.corpus import making
from simcse_jax.data.corpus.making import Preparation, make, make_plan
from simcse_jax.data.corpus.prepared import Prepared
from simcse_jax.host.locks import held
from simcse_jax.host.storage import as_path

datasets = later("datasets")
FIRST, SECOND, THIRD = (f"data-0000{number}.arrow" for number in range(3))


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def start(tiny_bert, corpus, tmp_path):
    """Makes a corpus of three sources."""
    header, *rows = corpus["csv"].read_text().splitlines()
    (tmp_path / "data").mkdir()
    for number, part in enumerate((rows[:20], rows[20:], rows[5:8])):
        (tmp_path / f"data/{number}.csv").write_text("\n".join([header, *part]) + "\n")
    tokenizer = tokenizer_of(tiny_bert)

    def run(folder, num_proc=1, **changes):
        options = Preparation(**{"max_length": 16, "keep_text": True} | changes)
        return make(folder, make_plan([f"{tmp_path}/data/*.csv"], tokenizer, 40, options), tokenizer, num_proc)

    return run


@pytest.fixture
def undisturbed(start, tmp_path):
    start(tmp_path / "undisturbed")
    return tmp_path / "undisturbed"


def killed(folder, name):
    for lost in ("corpus.json", name.replace("arrow", "json")):
        (folder / lost).unlink()
    (folder / name).replace(folder / f".{name}.tmp")
    (folder / ".lock").touch()


DAMAGES = {
    "killed at the first": lambda folder: killed(folder, FIRST),
    "killed at the last": lambda folder: killed(folder, THIRD),
    "killed before the facts": lambda folder: [(folder / name).unlink() for name in ("data-00001.json", "corpus.json")],
    "lost": lambda folder: (folder / SECOND).unlink(),
    "cut": lambda folder: (folder / SECOND).write_bytes(b""),
    "all but the manifest": lambda folder: [path.unlink() for path in folder.glob("data-*")],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_a_kill_or_a_disk_left_is_completed_with_the_same_bytes(damage, start, undisturbed, tmp_path):
    folder = shutil.copytree(undisturbed, tmp_path / "out")
    damage(folder)
    start(folder)
    assert files(folder) == files(undisturbed)


def test_several_processes_make_what_one_makes_and_datasets_reads_it(start, undisturbed, tmp_path):
    start(tmp_path / "out", num_proc=2)
    assert files(tmp_path / "out") == files(undisturbed)
    found = datasets.load_from_disk(str(tmp_path / "out"))
    assert len(found) == 43 and len(found[21]["texts"]) == 3
    ids, mask, _ = rows_of(Prepared(tmp_path / "out"))
    for row in (0, 20, 42):
        assert found[row]["input_ids"] == [
            line[kept > 0].tolist() for line, kept in zip(ids[row], mask[row], strict=True)
        ]


def test_another_corpus_s_folder_or_source_and_a_second_writer_are_refused(start, tmp_path, tiny_bert, corpus):
    folder = tmp_path / "out"
    start(folder)
    before = files(folder)
    for message, changes in {
        "max_length was [16, 16], is [8, 8]": {"max_length": 8},
        "columns was {}": {"columns": {"anchor": "sent0", "positive": "sent1", "negative": "hard_neg"}},
        "prompts was []": {"prompts": ["query: "]},
        "keep_text was True": {"keep_text": False},
    }.items():
        raises(message, start, folder, **changes)
    source = tmp_path / "data/0.csv"
    text = source.read_text()
    source.write_text(text + "a cat,a dog,a bird\n")
    raises("0.csv: bytes was", start, folder)
    source.write_text(text)
    (tmp_path / "data/2.csv").rename(tmp_path / "2.csv")
    raises("0.csv: written was", start, folder)
    assert files(folder) == before
    with ThreadPoolExecutor(1) as other:
        lock = held(tmp_path / "taken")
        other.submit(lock.__enter__).result()
        raises("is writing there", start, tmp_path / "taken")
        other.submit(lock.__exit__, None, None, None).result()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.tex").touch()
    raises("has other files (thesis.tex)", start, tmp_path / "full")
    lexicon, keys = tmp_path / "lexicon.xml", []
    for number in range(2):
        lexicon.write_text(f"<a>{number}</a>")
        options = Preparation(16, augment={"name": "synonym", "lexicon": str(lexicon)})
        keys.append(make_plan([str(corpus["txt"])], tokenizer_of(tiny_bert), 40, options).settings)
    assert keys[0]["augment"] != keys[1]["augment"] and keys[0]["seed"] == 42
    for message, data, options in (
        ("train.csv has triplets, ", ("csv", "txt"), {}),
        ("--prompt: 2 were given for 3 columns", ("csv",), {"prompts": ["a", "b"]}),
        ("--augment crop: ", ("csv",), {"augment": {"name": "crop"}}),
    ):
        names = [str(corpus[name]) for name in data]
        raises(message, make_plan, names, tokenizer_of(tiny_bert), 40, Preparation(16, **options))


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


@NEEDS_GCSFS
def test_a_corpus_in_a_bucket_has_the_bytes_of_one_on_a_disk_also_after_a_kill(start, store, undisturbed):
    folder = as_path("gs://bucket/corpus")
    for _ in range(2):
        start(folder)
        found = {name.removeprefix("corpus/"): store.objects[name].data for name in store.names("corpus/")}
        assert found == files(undisturbed)
        for name in ("corpus.json", "data-00001.json"):
            store.delete(f"corpus/{name}")


def test_no_more_rows_are_held_than_make_a_batch_and_changed_or_blank_sources_are_named(
    tiny_bert, tmp_path, monkeypatch
):
    monkeypatch.setattr(making, "CHUNK", 8)
    monkeypatch.setattr(making, "BATCH_TOKENS", 16 * 4)
    source = tmp_path / "a.txt"
    source.write_text("a cat\n" * 100)
    assert len(prepare(tmp_path / "many", tiny_bert, source)) == 100
    with open(tmp_path / "many" / FIRST, "rb") as file:
        assert [len(batch) for batch in pyarrow.ipc.open_stream(file)] == [16] * 6 + [4]
    source.write_text("\n\n")
    raises("holds no sentences, only 2 blank rows", prepare, tmp_path / "blank", tiny_bert, source)
    assert not (tmp_path / "blank").exists()
    source.write_text("a cat\na dog\n")
    raises("no blank line between", prepare, tmp_path / "blank", tiny_bert, source, positives="next_sentence")
    real = making.check_used
    monkeypatch.setattr(making, "check_used", lambda *given: os.utime(source, (1, 1)) or real(*given))
    raises("a.txt: was changed while", prepare, tmp_path / "changed", tiny_bert, source)
    assert not (tmp_path / "changed").exists()


def test_a_mistake_of_ours_is_not_called_one_of_the_disk(start, tmp_path, monkeypatch):
    monkeypatch.setattr(making, "read_items", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        start(tmp_path / "new")
    assert not [name for name in files(tmp_path / "new") if "data-" in name]
