import numpy as np
import pytest
from support.cross_encoders import write_cross_encoder

from simcse_jax import CrossEncoder
from simcse_jax.errors import UserError
from simcse_jax.index.index import Result
from simcse_jax.index.reranking import reranked

TEXTS = ["the cat", "a dog ran home", "x", "the cat"]


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    return CrossEncoder(write_cross_encoder(tmp_path_factory.mktemp("judge") / "model"))


def test_results_are_sorted_by_the_judge(judge):
    results = [Result(text, row, 1 - row / 9) for row, text in enumerate(TEXTS)]
    scores = judge.predict([("the dog", text) for text in TEXTS])
    first, none, second = reranked(judge, ["the dog", "b", "a"], [results, [], results[:2]], 3)
    order = np.argsort(-scores, kind="stable")[:3].tolist()
    assert [(one.sentence, one.row) for one in first] == [(TEXTS[row], row) for row in order]
    np.testing.assert_allclose([one.score for one in first], scores[order], atol=1e-6)
    assert none == [] and len(second) == 2
    least = float(scores[order[1]]) - 1e-6
    assert [one.row for one in reranked(judge, ["the dog"], [results], 4, least)[0]] == [
        row for row in np.argsort(-scores, kind="stable").tolist() if scores[row] >= least
    ]


def test_an_index_without_texts_and_other_arguments_are_refused(judge):
    with pytest.raises(UserError, match="reranks texts, and the index has none"):
        reranked(judge, ["a"], [[Result("", 0, 1.0), Result("", 1, 0.5)]], 1)
    for queries, top_k, message in (
        ("a", 1, "takes a list of queries"),
        (["a", "b"], 1, "as many lists of results"),
        (["a"], 0, "top_k 0: must be"),
    ):
        with pytest.raises(UserError, match=message):
            reranked(judge, queries, [[Result("x", 0, 1.0)]], top_k)
