import importlib

import numpy as np
import pytest
from support.recorded import recorded

from simcse_jax.evaluation import beir, ranking

CUTOFFS = (1, 3, 10, 100)
DOCUMENTS = [f"d{number}" for number in range(30)]


def problem():
    """Scores with many ties, and judgements from -1 to 3, of queries by their ids; the last has nothing relevant."""
    run = {f"q{q}": {f"d{d}": (3 * q + d * d) % 7 / 4 for d in range(30)} for q in range(5)}
    qrels = {f"q{q}": {f"d{d}": (q + 2 * d) % 5 - 1 for d in range(q, 30, q + 2)} for q in range(4)}
    return run, qrels | {"q4": {"d3": 0, "d4": -1}}


def ours(run, qrels):
    """Each measure of each query, of the documents in the order that a search has them: ties by row."""
    judged = {(query, each): score for query, of in qrels.items() for each, score in of.items()}
    collection = beir.collect(dict.fromkeys(run, ""), dict.fromkeys(sorted(DOCUMENTS, reverse=True), ""), judged, 30)
    scores = np.array([[of[each] for each in collection.ids] for of in run.values()], np.float32)
    rows = np.argsort(-scores, axis=1, kind="stable")
    ideal, relevant = collection.ideal(max(CUTOFFS)), collection.relevant
    return {
        name: ranking.measure(name, collection.gains(rows[:, : int(name.split("@")[1])]), ideal, relevant)
        for name in (f"{name}@{cutoff}" for name in ("ndcg", "mrr", "map", "recall") for cutoff in CUTOFFS)
    }


def theirs(run, qrels):
    """The same by pytrec-eval-terrier; MRR@k of the run cut off at k, as trec_eval orders it."""
    pytrec_eval = importlib.import_module("pytrec_eval")
    cut = ",".join(map(str, CUTOFFS))
    names = {"ndcg": "ndcg_cut", "map": "map_cut", "recall": "recall"}
    found = pytrec_eval.RelevanceEvaluator(qrels, {f"{name}.{cut}" for name in names.values()}).evaluate(run)
    values = {
        f"{ours}@{cutoff}": [found[query][f"{name}_{cutoff}"] for query in run]
        for ours, name in names.items()
        for cutoff in CUTOFFS
    }
    for cutoff in CUTOFFS:
        order = {query: sorted(of, key=lambda each: (of[each], each), reverse=True) for query, of in run.items()}
        part = {query: {each: of[each] for each in order[query][:cutoff]} for query, of in run.items()}
        found = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(part)
        values[f"mrr@{cutoff}"] = [found[query]["recip_rank"] for query in run]
    return values


@pytest.mark.parametrize("elsewhere", [{}, {"q0": {"x": 3, "y": 1}, "q1": {"x": 0}, "q3": {"y": -1}, "q4": {"z": 2}}])
def test_measures_are_trec_evals(elsewhere):
    """With `elsewhere`, some judged documents are not in the corpus."""
    run, qrels = problem()
    qrels = {query: of | elsewhere.get(query, {}) for query, of in qrels.items()}
    peer = recorded(f"trec_eval{'-elsewhere' * bool(elsewhere)}", lambda: theirs(run, qrels), "pytrec-eval-terrier")
    found = ours(run, qrels)
    assert found.keys() == peer.keys()
    for name, values in found.items():
        np.testing.assert_allclose(values, peer[name], rtol=0, atol=1e-9, err_msg=name)


def test_a_ranking_that_ends_early_and_a_query_without_relevant_documents():
    gains, ideal = np.array([[0, 2], [0, 0]]), np.array([[2, 1], [0, 0]])
    relevant = np.array([2, 0])
    found = {name: ranking.measure(f"{name}@10", gains, ideal, relevant) for name in ("ndcg", "mrr", "map", "recall")}
    first = {name: values[0] for name, values in found.items()}
    best = 2 + 1 / np.log2(3)
    assert first == pytest.approx({"ndcg": 2 / np.log2(3) / best, "mrr": 0.5, "map": 0.25, "recall": 0.5})
    assert all(values[1] == 0 for values in found.values())
    nothing = np.zeros((2, 0), int)
    assert not any(ranking.measure(f"{name}@1", nothing, ideal, relevant).any() for name in found)
