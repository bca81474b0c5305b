import json

import numpy as np
import pytest

from simcse_jax.data.sources import Examples
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.against import Paired, measure
from simcse_jax.evaluation.retrieval import Retrieval
from simcse_jax.evaluation.transfer import Transfer
from simcse_jax.evaluation.transfer_files import Task
from simcse_jax.training import examples
from simcse_jax.training.held_out import as_collection

QUERIES, ANSWERS = ([f"{kind} {number}" for number in range(12)] for kind in ("query", "answer"))
RETRIEVAL = Retrieval({"held_out": as_collection(Examples((QUERIES, ANSWERS), 0), ANSWERS)}, ["ndcg@10"])


def model(confused=()):
    """Each query is next to its answer, but for some, which are next to the answer after it."""

    def embed(texts):
        places = [int(text.split()[1]) for text in texts]
        moved = [n + (text.startswith("query") and n in confused) for n, text in zip(places, texts, strict=True)]
        return np.eye(13, dtype=np.float32)[moved] * 3

    return embed


def test_queries_whose_answer_rose_or_fell_most_are_shown_with_what_was_found(tmp_path):
    before, after = model({0, 1, 2, 3, 4}), model({4, 7})
    tasks, _ = measure([RETRIEVAL], before, after)
    found = examples.moved([RETRIEVAL], tasks)
    assert len(found["rose"]) == examples.MOVED and len(found["fell"]) == 1
    (fell,) = found["fell"]
    assert fell["texts"] == {"query": "query 7", "right answer": "answer 7"} | {
        "found first, before": "answer 7",
        "found first, after": "answer 8",
    }
    assert fell["change"].startswith("right answer: #1 → ") and "#1" not in fell["change"][18:]
    assert {row["texts"]["query"] for row in found["rose"]} <= {f"query {n}" for n in range(4)}
    assert examples.moved([RETRIEVAL], measure([RETRIEVAL], before, before)[0]) == {"rose": [], "fell": []}
    shown = examples.before([RETRIEVAL], before)
    assert len(shown["pairs"]) == examples.PAIRS and all(a.split()[1] == b.split()[1] for a, b in shown["pairs"])
    assert np.trace(shown["before"]) == sum(int(a.split()[1]) > 4 for a, _ in shown["pairs"])
    examples.update(tmp_path, shown)
    examples.update(tmp_path, {"after": examples.cosines([RETRIEVAL], after)})
    assert json.loads((tmp_path / "examples.json").read_text()).keys() == {"pairs", "before", "after"}


def test_pairs_with_scores_are_shown_by_how_far_their_place_is_from_that_of_their_score():
    gold = np.arange(12.0)
    pairs = sts.Pairs(QUERIES, [f"other {n}" for n in range(12)], gold, {})
    evaluator = sts.Similarity({"held_out": pairs})

    def ordered(order):
        def embed(texts):
            angles = [0.1 * order[int(text.split()[1])] * text.startswith("query") for text in texts]
            return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

        return embed

    right = 11 - np.arange(12)  # the highest score at the smallest angle
    wrong = right.copy()
    wrong[[0, 11]] = wrong[[11, 0]]
    found = examples.moved([evaluator], measure([evaluator], ordered(wrong), ordered(right))[0])
    assert found["fell"] == [] and {row["texts"]["text"] for row in found["rose"]} == {"query 0", "query 11"}
    assert found["rose"][0]["change"] == "score 11, #1 of 12; cosine #12 → #1"
    labels = sts.Similarity({"held_out": pairs._replace(gold=(gold > 5).astype(float))})
    found = examples.moved([labels], measure([labels], ordered(wrong), ordered(right))[0])  # a place of six is right
    assert found["rose"][0]["change"] in {
        "score 1, #1 to #6 of 12; cosine #12 → #1",
        "score 0, #7 to #12 of 12; cosine #1 → #12",
    }
    assert len(found["rose"]) == 2 and found["fell"] == []
    chosen = examples.before([evaluator], ordered(right))["pairs"]
    assert chosen[0] == ["query 11", "other 11"] and len(chosen) == examples.PAIRS
    alike = sts.Similarity({"held_out": pairs._replace(first=["query 1"] * 12, second=["Query 1"] * 12)})
    assert examples.before([alike], ordered(right)) == {} == examples.before([], ordered(right))
    assert examples.cosines([], ordered(right)) == []


@pytest.mark.parametrize(
    "text, shown",
    [("a\n b\t", "a b"), ("x" * 100_000, "x" * 300 + "…"), ("a " * 900, ("a " * 150).strip() + "…"), ("\ud800", "?")],
)
def test_texts_are_cut_to_a_line(text, shown):
    assert examples.cut(text) == shown


def test_sentences_with_classes_are_shown_by_whether_their_class_is_found():
    texts, labels = [f"text {n}" for n in range(20)], np.arange(20) % 3
    task = Task(texts, [], labels, {"train": slice(0, 12), "test": slice(12, None)}, 3)
    before, after = np.array([0, 100, 100, 0, 0, 0, 0, 0.0]), np.array([100, 0, 100, 0, 0, 0, 0, 0.0])
    evaluator = Transfer({"held_out": task})
    found = examples.moved([evaluator], [Paired(np.arange(8), before, after, None)])
    assert found["rose"] == [{"texts": {"text": "text 12"}, "change": "class 0: not found → found"}]
    assert found["fell"] == [{"texts": {"text": "text 13"}, "change": "class 1: found → not found"}]
    pairs = examples.before([evaluator], lambda texts: np.eye(3)[[int(text.split()[1]) % 3 for text in texts]])
    assert pairs["pairs"] == [["text 12", "text 18"], ["text 13", "text 19"], ["text 14", "text 17"]]
    assert pairs["before"] == np.eye(3).tolist()
