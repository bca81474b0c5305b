import json
import shutil

import numpy as np
from support.corpora import in_memory, prepare, rows_of
from support.data import raises

from simcse_jax.data.corpus import making
from simcse_jax.data.corpus.prepared import Prepared


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
    np.testing.assert_array_equal(found.counts(), counts)


def damaged(folder, path, data, read=lambda corpus: rows_of(corpus)):
    """The file with these bytes is named when the corpus is read."""
    path.write_bytes(data)
    raises(f"{path.name}: ", lambda: read(Prepared(folder)))


def filled(data, start, end, byte=0):
    return data[:start] + bytes([byte]) * (end - start) + data[end:]


def test_rows_have_their_labels_negatives_and_origins(tiny_bert, tmp_path, monkeypatch):
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
            assert found.shards[0].left_out == {"blank": 9, "unlabelled": 9}
    negatives = [["a cat", "the dog", "home"], ["a bird"], [], ["the red cat", "a dog"]] * 9
    pairs = ({"sent0": f"a cat {at}", "sent1": "a dog", "neg": row} for at, row in enumerate(negatives))
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    found = prepare(tmp_path / "fewer", tiny_bert, tmp_path / "pairs.jsonl", keep_text=True)
    same_rows(found, in_memory(tiny_bert, tmp_path / "pairs.jsonl"))
    assert (found.fewest_columns, found.num_columns, found.mixed) == (2, 5, True)
    assert [row[2:] for row in found.texts(np.array([1, 2, 0]))] == [negatives[1], [], negatives[0]]
    monkeypatch.setattr(making, "CHUNK", 6)  # rows that are tokenized together
    monkeypatch.setattr(making, "BATCH_TOKENS", 1)
    rows = [f"the cat {'sat ' * (n % 5)}" if n % 7 else "" for n in range(40)]
    (tmp_path / "a.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "b.txt").write_text("\n".join(["the dog ran"] * 20) + "\n")
    corpus = prepare(tmp_path / "origins", tiny_bert, tmp_path / "*.txt", keep_text=True)
    order = np.random.default_rng(0).permutation(len(corpus))
    sources, numbers = corpus.origins(order)
    used = [(0, n) for n in range(40) if n % 7] + [(1, n) for n in range(20)]
    assert list(zip(sources.tolist(), numbers.tolist(), strict=True)) == [used[row] for row in order]
    expected = [rows[used[row][1]].strip() if used[row][0] == 0 else "the dog ran" for row in order]
    assert corpus.texts(order) == [[text] for text in expected]


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
    np.testing.assert_array_equal(both.counts([1.0, 1.0]), both.counts())
    weighted = both.counts([0.5, 3.0])
    assert weighted.sum(axis=1).tolist() == [0.5 * 40 + 3 * 40] * 3
    np.testing.assert_array_equal(weighted, 3 * both.counts() - 2.5 * Prepared(triplets).counts())
    rows = [line.split(",") for line in corpus["csv"].read_text().splitlines()[1:]]
    assert Prepared(triplets).texts(np.array([39, 0, 17])) == [rows[39], rows[0], rows[17]]
    raises("--keep-text", Prepared(lines).texts, np.array([0]))


def test_a_file_that_is_missing_cut_or_damaged_is_named(triplets, tmp_path):
    folder = shutil.copytree(triplets, tmp_path / "copy")
    path = folder / "data-00000.arrow"
    whole, tokens = path.read_bytes(), Prepared(folder)._tokens[0]
    at = whole.index(tokens.tobytes())
    rows = whole.index(Prepared(folder)._batches[0].column("texts").offsets.to_numpy().tobytes())
    damaged(folder, path, whole[:-1])
    for start, end, byte in (
        (0, len(whole), 0),  # what a disk has for what was lost
        (0, 64, 0),
        (at, at + 2, 255),  # a token that cannot be
        (at - 4 * 122, at, 0),  # where sentences begin
        (at - 4 * 100, at - 4 * 99, 255),
    ):
        damaged(folder, path, filled(whole, start, end, byte))
    text = whole.index(b"sat")
    for start, end, byte in ((text, text + 1, 255), (rows + 8, rows + 12, 127)):  # where a row's texts begin
        damaged(folder, path, filled(whole, start, end, byte), lambda found: found.texts(np.arange(40)))
    path.unlink()
    raises(f"{path.name}: missing", Prepared, folder)
