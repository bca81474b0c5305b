import json
import shutil

import numpy as np
from support.corpora import in_memory, prepare, rows_of
from support.data import raises

from simcse_jax.data.corpus.prepared import Prepared, origins, texts


def same_rows(found, expected):
    """The corpus has the rows of the one in memory; the manifest counts lengths, those of stand-ins too."""
    ids, mask, present = rows_of(found)
    np.testing.assert_array_equal(ids, expected.input_ids)
    np.testing.assert_array_equal(mask, expected.attention_mask)
    assert (found.mixed, found.fewest_columns) == (expected.present is not None, expected.fewest_columns)
    np.testing.assert_array_equal(present, np.ones_like(present) if expected.present is None else expected.present)
    lengths = found.locate(np.arange(len(found))).lengths
    np.testing.assert_array_equal(lengths, expected.attention_mask.sum(axis=2))
    counts = [np.bincount(column, minlength=17) for column in lengths.T]
    np.testing.assert_array_equal(found.manifest.counts, counts)


def damaged(folder, path, data, read=lambda corpus: rows_of(corpus)):
    """The file with these bytes is named when the corpus is read."""
    path.write_bytes(data)
    raises(f"{path.name}: ", lambda: read(Prepared(folder)))


def filled(data, start, end, byte=0):
    return data[:start] + bytes([byte]) * (end - start) + data[end:]


def test_rows_have_their_labels_negatives_and_origins_and_zeros_are_found(tiny_bert, tmp_path, monkeypatch):
    rows = [("a cat", "a dog", "entailment"), ("a bird", "a cat", "-"), ("the cat", "home", "2"), ("", "a", "0")]
    lines = ["premise,hypothesis,label", *(",".join(row) for row in rows * 9)]
    (tmp_path / "nli.csv").write_text("\n".join(lines) + "\n")
    columns = {"anchor": "premise", "positive": "hypothesis", "label": "label"}
    for name, options in (("out", {"labels": True}), ("only", {"positives": "entailment"})):
        found = prepare(tmp_path / name, tiny_bert, tmp_path / "nli.csv", columns=columns, **options)
        expected = in_memory(tiny_bert, tmp_path / "nli.csv", columns=columns, **options)
        same_rows(found, expected)
        if name == "out":
            np.testing.assert_array_equal(found.labels(np.arange(18)), expected.labels)
            assert found.manifest.sources[0]["left_out"] == {"blank": 9, "unlabelled": 9}
    rows = "".join(f"a cat,a dog,{number % 3}\n" for number in range(40))
    (tmp_path / "nli.csv").write_text("sent0,sent1,label\n" + rows)
    found = prepare(tmp_path / "zeros", tiny_bert, tmp_path / "nli.csv", labels=True)
    np.testing.assert_array_equal(found.labels(np.arange(40)), np.arange(40) % 3)
    shard = found.manifest.shards[1]
    path, parts = tmp_path / "zeros" / shard.file, shard.parts(2, True)
    whole = path.read_bytes()
    for start, end, byte in [
        (parts.entries, parts.labels, 0),
        (parts.entries + 8, parts.entries + 16, 0),
        (parts.labels, parts.labels + 16, 7),
        (parts.labels, parts.labels + 16, 0),
        (0, parts.end, 0),
    ]:
        damaged(tmp_path / "zeros", path, filled(whole, start, end, byte))
    negatives = [["a cat", "the dog", "home"], ["a bird"], [], ["the red cat", "a dog"]] * 9
    pairs = ({"sent0": f"a cat {at}", "sent1": "a dog", "neg": row} for at, row in enumerate(negatives))
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    found = prepare(tmp_path / "fewer", tiny_bert, tmp_path / "pairs.jsonl", keep_text=True)
    same_rows(found, in_memory(tiny_bert, tmp_path / "pairs.jsonl"))
    assert (found.fewest_columns, found.num_columns, found.mixed) == (2, 5, True)
    assert [row[2:] for row in texts(found, np.array([1, 2, 0]))] == [negatives[1], [], negatives[0]]
    shard = found.manifest.shards[0]
    path, parts = tmp_path / "fewer" / shard.file, shard.parts(2, labels=False)
    data = filled(path.read_bytes(), parts.entries, parts.labels)  # no row without negatives
    damaged(tmp_path / "fewer", path, data)
    monkeypatch.setattr("simcse_jax.data.corpus.making.CHUNK", 6)  # rows that are tokenized together
    rows = [f"the cat {'sat ' * (n % 5)}" if n % 7 else "" for n in range(40)]
    (tmp_path / "a.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "b.txt").write_text("\n".join(["the dog ran"] * 20) + "\n")
    corpus = prepare(tmp_path / "origins", tiny_bert, tmp_path / "*.txt", keep_text=True)
    order = np.random.default_rng(0).permutation(len(corpus))
    sources, numbers = origins(corpus, order)
    used = [(0, n) for n in range(40) if n % 7] + [(1, n) for n in range(20)]
    assert list(zip(sources.tolist(), numbers.tolist(), strict=True)) == [used[row] for row in order]
    expected = [rows[used[row][1]].strip() if used[row][0] == 0 else "the dog ran" for row in order]
    assert texts(corpus, order) == [[text] for text in expected]
    shard = corpus.manifest.shards[0]
    path, start = tmp_path / "origins" / shard.file, shard.parts(2, False).origins
    for byte in (0, 4):  # numbers that cannot be
        data = filled(path.read_bytes(), start, path.stat().st_size, byte)
        damaged(tmp_path / "origins", path, data, lambda found: origins(found, np.arange(3)))


def test_its_rows_and_lengths_are_those_that_training_reads(triplets, lines, tiny_bert, corpus, tmp_path):
    same_rows(Prepared(triplets), in_memory(tiny_bert, corpus["csv"]))
    same_rows(Prepared(lines), in_memory(tiny_bert, corpus["txt"]))
    found, order = Prepared(triplets), np.random.default_rng(0).permutation(40)
    for got, whole in zip(rows_of(found, order), rows_of(found), strict=True):
        np.testing.assert_array_equal(got, whole[order])
    (tmp_path / "pairs.csv").write_text("sent0,sent1\na cat,the dog\n")
    data = f"{corpus['txt']},{corpus['csv']},{tmp_path / 'pairs.csv'}"
    found = prepare(tmp_path / "out", tiny_bert, data, mixed=True)
    same_rows(found, in_memory(tiny_bert, data, mixed=True))
    assert found.fewest_columns == 1 and found.num_columns == 3
    both = Prepared(triplets, lines)
    np.testing.assert_array_equal(both.counts(), both.manifest.counts)
    np.testing.assert_array_equal(both.counts([1.0, 1.0]), both.manifest.counts)
    weighted = both.counts([0.5, 3.0])
    assert weighted.sum(axis=1).tolist() == [0.5 * 40 + 3 * 40] * 3
    np.testing.assert_array_equal(weighted, 3 * both.manifest.counts - 2.5 * Prepared(triplets).counts())
    rows = [line.split(",") for line in corpus["csv"].read_text().splitlines()[1:]]
    assert texts(Prepared(triplets), np.array([39, 0, 17])) == [rows[39], rows[0], rows[17]]
    raises("--keep-text", texts, Prepared(lines), np.array([0]))


def test_a_shard_or_text_that_is_missing_cut_or_changed_is_named(triplets, tmp_path):
    folder = shutil.copytree(triplets, tmp_path / "copy")
    path, generator = folder / "shard-00000-00001", np.random.default_rng(0)
    whole = path.read_bytes()
    damaged(folder, path, whole[:-1])
    for part in (0, 1 << 16):  # tokens, and where they begin
        for place in (part + generator.integers(0, 16 * 3 * 8, size=20)).tolist():
            damaged(folder, path, filled(whole, place, place + 1, whole[place] ^ 1 << place % 8))
    path.unlink()
    raises(f"{path.name}: missing", Prepared, folder)
    folder = shutil.copytree(triplets, tmp_path / "out")
    path, rows = folder / "shard-00000-00001.text", np.arange(16, 32)
    whole, generator = path.read_bytes(), np.random.default_rng(0)
    places = [*generator.integers(0, 8 * 48, size=10), *generator.integers(8 * 49, len(whole), size=10)]
    changed = [filled(whole, int(place), int(place) + 1, whole[place] ^ 1) for place in places]
    for data in (whole[:-1], bytes(len(whole)), *changed):
        damaged(folder, path, data, lambda found: texts(found, rows))
    path.unlink()
    raises(f"{path.name}: missing; a copy in data.local_cache may have no text", texts, Prepared(folder), rows)
