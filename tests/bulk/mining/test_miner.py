import numpy as np
import pytest
from support.data import raises
from support.mined import Fixed, corpus_of, mined, pairs_of

from simcse_jax.bulk.mining.corpus import MinedCorpus
from simcse_jax.bulk.mining.miner import check_corpus, check_rows
from simcse_jax.bulk.mining.pairs import Pair, Positives
from simcse_jax.bulk.mining.selection import Choice
from simcse_jax.index.index import Index
from simcse_jax.vectors.quantization import ranges_of

TEXTS = [f"text {number}" for number in range(60)]
CHOICES = [Choice(3, 0, 4), Choice(4, 2, 30, relative_margin=0.1), Choice(5, 1, 12, max_score=0.5)]
CHOICES += [Choice(4, 0, 20, absolute_margin=0.2, min_score=0.1)]


def by_hand(pair, positives, texts, choice, model, judge=None):
    """One candidate after the other, in float64; rows of the corpus."""
    query = model.encode_query([pair.anchor])[0].astype(np.float64)
    scores = model.encode_document(texts).astype(np.float64) @ query
    ranked, seen = [], {pair.anchor, ""}
    for row in np.argsort(-scores, kind="stable").tolist():
        if texts[row] not in seen:
            seen.add(texts[row])
            ranked.append(row)
    ranked = ranked[: choice.range_max + len(positives)]
    judged = judge or model
    asked = judged.encode_query([pair.anchor])[0].astype(np.float64)
    own = judged.encode_document([pair.positive])[0].astype(np.float64) @ asked
    kept = []
    for row in ranked:
        score = judged.encode_document([texts[row]])[0].astype(np.float64) @ asked
        wrong = [
            texts[row] in positives,
            choice.absolute_margin is not None and score + choice.absolute_margin > own,
            choice.relative_margin is not None and score > own - abs(own) * choice.relative_margin,
            choice.max_score is not None and score > choice.max_score,
            choice.min_score is not None and score < choice.min_score,
        ]
        kept += [] if any(wrong) else [row]
    return kept[: choice.range_max][choice.range_min :][: choice.num_negatives]


@pytest.mark.parametrize(("choice", "judged"), [*zip(CHOICES, [False, True, False, True], strict=True)])
def test_negatives_are_those_of_a_search_by_hand(choice, judged):
    """Anchors with several positives, texts that are there twice, and the anchor itself among them."""
    model, judge = Fixed(), Fixed(seed=1) if judged else None
    texts = [*TEXTS, *TEXTS[:30], "query 1", "", "query 2"]
    pairs = [*pairs_of(8, TEXTS[5:]), Pair(8, "query 1", TEXTS[40]), Pair(9, "query 2", "not in the corpus")]
    positives = {}
    for pair in pairs:
        positives.setdefault(pair.anchor, set()).add(pair.positive)
    records = mined(pairs, corpus_of(texts, model), choice, model, judge)
    expected = [by_hand(pair, positives[pair.anchor], texts, choice, model, judge) for pair in pairs]
    assert [record["negative_rows"] for record in records] == expected
    for pair, record in zip(pairs, records, strict=True):
        assert record["negative"] == [texts[row] for row in record["negative_rows"]]
        assert (record["row"], record["anchor"], record["positive"]) == (pair.row, pair.anchor, pair.positive)
        scores = model.encode_document(record["negative"] or ["-"]) @ model.encode_query([pair.anchor])[0]
        np.testing.assert_allclose(record["negative_scores"], scores[: len(record["negative"])], atol=1e-6)
        assert ("negative_judged" in record) == judged


def test_many_positives_make_no_other_query_fetch_as_many_and_a_textless_corpus_needs_their_rows():
    model, searched = Fixed(), []
    corpus = corpus_of(TEXTS, model)

    def search(queries, count):
        searched.append((len(queries), count))
        return corpus.search(queries, count)

    choice = Choice(3, 0, 4, absolute_margin=0.2)
    pairs = [Pair(row, "many", text) for row, text in enumerate(TEXTS[:40])] + pairs_of(5, TEXTS)
    found = mined(pairs, corpus._replace(search=search), choice, model)
    assert searched[0] == (5, 6) and sum(queries for queries, count in searched if count > 40) == 1
    for pair, record in zip(pairs, found, strict=True):
        own = set(TEXTS[:40]) if pair.anchor == "many" else {pair.positive}
        assert record["negative_rows"] == by_hand(pair, own, TEXTS, choice, model)
    corpus = corpus_of(TEXTS, model, has_text=False)
    pairs = [Pair(row, f"query {row}", TEXTS[row], (row, 59)) for row in range(5)]
    for pair, record in zip(pairs, mined(pairs, corpus, Choice(60, 0, 60), model), strict=True):
        assert "negative" not in record and len(record["negative_rows"]) == 58
        assert sorted({*record["negative_rows"], *pair.own_rows}) == list(range(60))
    check_corpus(corpus, True, False, Choice(1, 59, 62), "x")
    raises("positive_row", check_corpus, corpus, False, False, Choice(1, 0, 2), "x")
    raises("--judge: ", check_corpus, corpus, True, True, Choice(1, 0, 2), "x")
    raises("--range-min 60: x", check_corpus, corpus_of(TEXTS, model), False, False, Choice(1, 60, 62), "x")


def test_rows_that_pairs_name_and_texts_alike_are_the_pair_s_own_scored_as_the_index_stores_them():
    model = Fixed()
    for has_text in (True, False):
        corpus = corpus_of(TEXTS, model, has_text)
        nearest = [result.row for result in corpus.search(model.encode_query(["query"]), 10)[0]]
        pairs = [Pair(row, "query", "another text", (nearest[row],)) for row in range(4)]
        assert mined(pairs[:4], corpus, Choice(3, 0, 3), model)[0]["negative_rows"] == nearest[4:7]
        check_rows(corpus, Positives(iter(pairs)), "x")
        wrong = Positives(iter([*pairs, Pair(4, "query", "text", (60,))]))
        raises("names row 60 of the corpus, but no row of x (60) has it", check_rows, corpus, wrong, "x")
    gaps = corpus._replace(numbers=np.arange(0, 120, 2))
    check_rows(gaps, Positives(iter([Pair(0, "query", "text", (118,))])), "x")
    raises("names row 7", check_rows, gaps, Positives(iter([Pair(0, "query", "text", (7, 118))])), "x")
    twice = corpus_of(["far", "one", "one"], model)  # the pair's own text is another, and its row is not the first
    assert mined([Pair(0, "query", "One.", (2,))], twice, Choice(2, 0, 3), model)[0]["negative_rows"] == [0]
    # Many models embed them alike: as negatives they would be the anchor and the positive themselves.
    texts = ["A man is eating.", "a  man is eating.", "THE MAN EATS.", "the man eats.", "A dog.", "a dog.", "a cat."]
    pair = Pair(0, "A man is  eating.", "The man eats.")
    record = mined([pair], corpus_of(texts, model), Choice(7, 0, 7), model)[0]
    (dog, cat) = sorted(record["negative_rows"])
    assert dog in (4, 5) and cat == 6
    for precision in ("int8", "binary"):
        model = Fixed(size=64)
        ranges = ranges_of(model.encode_document(TEXTS)) if precision == "int8" else None
        index = Index(64, precision=precision, ranges=ranges)
        index.add(TEXTS, model.encode_document(TEXTS))
        corpus = MinedCorpus(
            lambda queries, count: index.search(queries, count), 60, True, None, "", index.quantization
        )
        record = mined([Pair(0, "query 0", TEXTS[0])], corpus, Choice(59, 0, 59), model)[0]
        found = {result.row: result.score for result in index.search(model.encode_query(["query 0"]), 60)[0]}
        assert record["positive_score"] == pytest.approx(found[0], abs=1e-6)
