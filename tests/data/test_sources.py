import numpy as np
import pytest
from support.data import refused

from simcse_jax.data.examples import read_examples


@pytest.fixture
def several(write):
    return [write("s.txt", "a\n\nb\n"), write("p.csv", "sent0,sent1\nc,d\n"), write("t.csv", "x,y,z\ne,f,g\nh,,i\n")]


def test_sources_are_joined_in_order_and_a_folder_or_pattern_is_one(several, write, tmp_path, monkeypatch):
    first = write("u.csv", "anchor,positive,negative\nk,l,m\n")
    examples = read_examples(f"{first},{several[2]}")
    assert examples.columns == (["k", "e"], ["l", "f"], ["m", "g"])
    assert (examples.blank, examples.present, examples.kinds) == (1, None, "2 triplets")
    examples = read_examples(",".join(several), mixed=True)
    assert examples.columns == (list("abce"), list("abdf"), ["", "", "", "g"])
    np.testing.assert_array_equal(examples.present, [[1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
    assert (examples.blank, examples.kinds) == (2, "4 rows of 1 to 3 sentences")
    some = read_examples(",".join(several), mixed=True, subsample=3, seed=1)
    rows = ["abce".index(anchor) for anchor in some.columns[0]]
    assert rows == sorted(rows)
    np.testing.assert_array_equal(some.present, examples.present[rows])
    pairs = [write("a.csv", "sent0,sent1,label\na,b,0\nc,d,2\n"), write("b.csv", "sent0,sent1,label\ne,f,0\n")]
    joined = ",".join(pairs)
    assert read_examples(joined, labels=True).labels.tolist() == [0, 2, 0]
    assert read_examples(joined, positives="entailment").columns == (["a", "e"], ["b", "f"])
    documents = [write("a.txt", "a\nb\n\nc\nd\n"), write("b.txt", "e\nf\n\ng\n")]
    assert read_examples(",".join(documents), positives="next_sentence").columns == (list("ace"), list("bdf"))
    (tmp_path / "my").mkdir()
    write("my/b.csv", "sent0,sent1\nc,d\n")
    write("my/a.jsonl", '{"sent0": "a", "sent1": "b"}\n')
    write("my/_c.csv", "x\n")
    folder, alone = str(tmp_path / "my"), write("p.csv", "sent0,sent1\ne,f\n")
    for name in (folder, f"{folder}/*"):
        found = read_examples(name)
        assert (found.columns, found.sources) == ((["a", "c"], ["b", "d"]), None)
    both = read_examples(f"{alone},{folder}")
    assert both.sources.tolist() == [0, 1, 1]
    assert [both.kinds_of_source(number) for number in (0, 1)] == ["1 pairs", "2 pairs"]
    write("my/c.txt", "a sentence\n")
    refused(folder, "a.jsonl has pairs", "c.txt has sentences")
    assert read_examples(folder, mixed=True).columns[0] == ["a", "c", "a sentence"]
    refused(f"{folder}/*.parquet", "data.train=", "no file matches")
    monkeypatch.chdir(tmp_path)
    write("a,b.txt", "eins\n")
    write("c.txt", "zwei\n")
    assert read_examples("a,b.txt").columns == (["eins"],)
    assert read_examples('c.txt,"a,b.txt"').columns == (["zwei", "eins"],)
    sentences, pairs, triplets = several
    refused(f"{tmp_path}/no,ne.txt", f"{tmp_path}/no: no such file")
    refused(f"{sentences},{triplets}", sentences, "has sentences", triplets, "has triplets", "data.mixed=True")
    refused(f"{triplets},{pairs}", "t.csv: no labels", "objective.softmax_nli", options={"labels": True})
