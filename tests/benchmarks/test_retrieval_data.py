import csv
import sys

import numpy as np
import pytest
from support import ROOT

from simcse_jax.evaluation import beir

sys.path.insert(0, str(ROOT))
from benchmarks.equal_texts import write_copies
from benchmarks.retrieval_data import asked, entailed, write_beir
from benchmarks.retrieval_scores import draw, over_queries


def test_hypotheses_ask_for_their_premises_a_tenth_are_copies_and_the_test_is_over_queries_not_seeds(tmp_path):
    (tmp_path / "SNLI").mkdir()
    rows = [
        ("a b", "c", "entailment"), ("a b", "d", "contradiction"), ("e f", "c", "entailment"), ("g", "g", "neutral"),
    ]  # fmt: skip
    for name, column in zip(("s1", "s2", "labels"), zip(*rows, strict=True), strict=True):
        (tmp_path / "SNLI" / f"{name}.dev").write_text("\n".join(column) + "\n")
    premises = entailed(tmp_path, "dev")
    assert premises == {"a b": ["c"], "e f": ["c"], "g": []}
    write_beir(tmp_path / "it", [*premises, "c"], {"test": asked(premises)})
    found = beir.read(str(tmp_path / "it"))
    documents = [found.second[row] for row in found.judged[:, 1].tolist()]
    assert found.first == ["c"] and sorted(documents) == ["a b", "e f"]
    assert found.second[found.same_ids[0]] == "c"  # which is left out of its own ranking
    (tmp_path / "pairs.csv").write_text("a,b\n" + "".join(f"a{row},b{row}\n" for row in range(50)))
    for of in (0, 2):
        lines = write_copies(tmp_path / "pairs.csv", 40, of, tmp_path / "copies.csv").read_text().splitlines()
        assert lines[0] == "a,b" and len(lines) == 41 and len(set(lines[1:37])) == 36
        assert set(lines[37:]) <= set(lines[1 : 1 + (of or 36)])
    """Three seeds that agree, on three queries that do not: the seeds' own test says p < 0.001."""
    before = {"a": 50.0, "b": 60.0, "c": 70.0}
    seeds = [{"a": 80.0 + each, "b": 62.0 + each, "c": 61.0 + each} for each in (0.0, 0.1, 0.2)]
    differences = np.array([30.1, 2.1, -8.9])
    t = differences.mean() / (differences.std(ddof=1) / 3**0.5)
    assert over_queries(seeds, before) == pytest.approx(1 - t / (t * t + 2) ** 0.5)  # of two degrees of freedom
    assert over_queries(seeds, before) > 0.5


def test_the_picture_has_a_line_before_and_after_for_each_precision_that_its_scores_move():
    with open(ROOT / "docs" / "background" / "results" / "retrieval.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    picture = draw(lines)
    assert picture.startswith(b"\x89PNG") and picture == draw([line for line in lines if line["precision"] != "int8"])
    assert picture != draw([lines[0] | {"snli ndcg@10": "50"}, *lines[1:]])
