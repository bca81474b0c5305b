import numpy as np
from support.cross_encoders import write_cross_encoder
from support.data import raises

from simcse_jax import CrossEncoder
from simcse_jax.index.index import Result
from simcse_jax.index.reranking import reranked

TEXTS = ["the cat", "a dog ran home", "x", "the cat"]


def test_results_are_sorted_by_the_judge_if_the_index_has_texts(tmp_path):
    judge = CrossEncoder(write_cross_encoder(tmp_path / "model"))
    results = [Result(text, row, 1 - row / 9) for row, text in enumerate(TEXTS)]
    scores = judge.predict([("the dog", text) for text in TEXTS])
    first, none, second = reranked(judge.score_of_each, ["the dog", "b", "a"], [results, [], results[:2]], 3)
    order = np.argsort(-scores, kind="stable")[:3].tolist()
    assert [(one.sentence, one.row) for one in first] == [(TEXTS[row], row) for row in order]
    np.testing.assert_allclose([one.score for one in first], scores[order], atol=1e-6)
    assert none == [] and len(second) == 2
    least = float(scores[order[1]]) - 1e-6
    assert [one.row for one in reranked(judge.score_of_each, ["the dog"], [results], 4, least)[0]] == [
        row for row in np.argsort(-scores, kind="stable").tolist() if scores[row] >= least
    ]
    without = [Result("", 0, 1.0), Result("", 1, 0.5)]
    raises("reranking needs texts, and the index has none", reranked, judge.score_of_each, ["a"], [without], 1)
    for queries, top_k, message in (
        ("a", 1, "takes a list of queries"),
        (["a", "b"], 1, "as many lists of results"),
        (["a"], 0, "top_k=0: must be"),
    ):
        raises(message, reranked, judge.score_of_each, queries, [[Result("x", 0, 1.0)]], top_k)
