"""Mines hard negatives for blocks of pairs: encodes the queries, searches, and selects among the nearest rows."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32

from simcse_jax.bulk.mining.corpus import MinedCorpus
from simcse_jax.bulk.mining.judge import Judge
from simcse_jax.bulk.mining.pairs import Pair, Positives, text_hash
from simcse_jax.bulk.mining.selection import Choice, select
from simcse_jax.errors import UserError
from simcse_jax.index.index import Result
from simcse_jax.simcse import SimCSE
from simcse_jax.vectors.similarity import pairwise, prepared

WIDER = 2  # times as many rows are searched if too many had the same text


class Candidates(NamedTuple):
    """The nearest rows of a query, without duplicate texts and the query itself."""

    results: list[Result]  # best first
    is_positive: np.ndarray  # (K,) bool


class Miner:
    """Finds hard negatives for blocks of pairs."""

    def __init__(self, model: SimCSE, corpus: MinedCorpus, positives: Positives, choice: Choice, judge: Judge | None):
        """Takes what is needed.

        Args:
          model: encodes queries and positives as it encoded the corpus.
          judge: gives the scores to which the limits apply; None for the first model's own.
        """
        self._model, self._corpus, self._positives = model, corpus, positives
        self._choice, self._judge = choice, judge

    def mine(self, pairs: Sequence[Pair]) -> tuple[list[dict[str, Any]], Counter[str]]:
        """A record for each pair, and the number of candidates that each limit excluded."""
        numbers: dict[str, int] = {}  # of the distinct anchors
        of = [numbers.setdefault(pair.anchor, len(numbers)) for pair in pairs]
        asked = list(numbers)
        queries, positives = self._model.encode_query(asked), [pair.positive for pair in pairs]
        positive_scores = self._own_scores(queries[of], self._model.encode_document(positives))
        by_anchor = self._candidates(asked, queries)
        judged = self._judged(asked, by_anchor, positives, of)
        records, left_out = [], Counter[str]()
        for place, (pair, number) in enumerate(zip(pairs, of, strict=True)):
            candidates = by_anchor[number]
            scores = np.array([result.score for result in candidates.results], np.float32)
            limits, positive = (scores, float(positive_scores[place])) if judged is None else judged[place]
            chosen = select(limits, positive, candidates.is_positive, self._choice, pair.row)
            left_out += chosen.left_out
            results = [candidates.results[at] for at in chosen.places.tolist()]
            record = self._record(pair, float(positive_scores[place]), results)
            if judged is not None:
                record |= {"positive_judged": _short(positive), "negative_judged": _shortened(limits[chosen.places])}
            records.append(record)
        return records, left_out

    def _own_scores(
        self, anchors: Float[np.ndarray, "N D"], positives: Float[np.ndarray, "N D"]
    ) -> Float32[np.ndarray, " N"]:
        """The scores of pairs as in a search: quantized rows, above all bits, score lower than float32."""
        name, quantization = self._model.similarity_fn_name, self._corpus.quantization
        if quantization is None:
            return pairwise(anchors, positives, name)
        stored = quantization.decode(quantization.encode(prepared(positives, name)))
        return pairwise(prepared(anchors, name), stored, "dot" if name == "cosine" else name)

    def _record(self, pair: Pair, score: float, results: list[Result]) -> dict[str, Any]:
        numbers = self._corpus.numbers
        rows = [result.row if numbers is None else int(numbers[result.row]) for result in results]
        record: dict[str, Any] = {"anchor": pair.anchor, "positive": pair.positive}
        if self._corpus.has_text:
            record["negative"] = [result.sentence.strip() for result in results]
        record |= {"row": pair.row, "negative_rows": rows, "positive_score": _short(score)}
        return record | {"negative_scores": _shortened(np.array([result.score for result in results], np.float32))}

    def _candidates(self, anchors: Sequence[str], queries: Float[np.ndarray, "Q D"]) -> list[Candidates]:
        """As many candidates as each query's ranks need, searching more rows if necessary."""
        positives = [self._positives.of(anchor) for anchor in anchors]
        needed = [self._choice.range_max + max(len(hashes), len(rows)) for hashes, rows in positives]
        least = min(needed) + 1  # and the anchor itself
        # More for queries with many positives, in powers of two; for all queries it would be too many.
        counts = [least << (need // least).bit_length() for need in needed]
        finished: dict[int, Candidates] = {}
        while unfinished := [place for place in range(len(anchors)) if place not in finished]:
            count = min(counts[place] for place in unfinished)
            together = [place for place in unfinished if counts[place] == count]
            for place, results in zip(together, self._corpus.search(queries[together], count), strict=True):
                candidates = self._distinct(anchors[place], results, *positives[place])
                if len(candidates.results) >= needed[place] or len(results) < count:  # or no rows are left
                    finished[place] = Candidates(
                        candidates.results[: needed[place]], candidates.is_positive[: needed[place]]
                    )
                else:
                    counts[place] = WIDER * count
        return [finished[place] for place in range(len(anchors))]

    def _distinct(self, anchor: str, results: list[Result], hashes: set[int], rows: set[int]) -> Candidates:
        ordered = sorted(results, key=lambda result: (-result.score, result.row))
        numbers = self._corpus.numbers
        is_own = [(result.row if numbers is None else int(numbers[result.row])) in rows for result in ordered]
        if not self._corpus.has_text:
            return Candidates(ordered, np.array(is_own, bool))
        texts = [text_hash(result.sentence) for result in ordered]
        seen, kept = {text_hash(anchor), text_hash("")}, []
        for place, text in enumerate(texts):
            if text not in seen:
                seen.add(text)
                kept.append(place)
        positives = hashes | {
            text for text, is_of in zip(texts, is_own, strict=True) if is_of
        }  # other rows may have the same text
        is_positive = np.array([texts[place] in positives for place in kept], bool)
        return Candidates([ordered[place] for place in kept], is_positive)

    def _judged(
        self, anchors: Sequence[str], candidates: list[Candidates], positives: Sequence[str], of: Sequence[int]
    ) -> list[tuple[Float32[np.ndarray, " K"], float]] | None:
        """The judge's scores of each pair's candidates, and of its positive; `of` are the pairs' anchors."""
        if self._judge is None:
            return None
        texts = [[result.sentence for result in of_anchor.results] for of_anchor in candidates]
        together = [[*texts[number], positive] for number, positive in zip(of, positives, strict=True)]
        scores = self._judge.score_of_each([anchors[number] for number in of], together)
        return [(pair_scores[:-1], float(pair_scores[-1])) for pair_scores in scores]


def check_corpus(corpus: MinedCorpus, has_rows: bool, judged: bool, choice: Choice, name: str) -> None:
    """Refuses a corpus in which positives cannot be told from negatives, or that has too few rows."""
    if not corpus.has_text and judged:
        raise UserError(f"--judge: reads the texts of candidates, and {name} has none")
    if not corpus.has_text and not has_rows:
        raise UserError(
            f"--corpus {name}: has no text, so positives cannot be told from negatives; add a column positive_row to "
            "--pairs, the number of each positive's row, or encode the corpus with its text (--keep-text)"
        )
    if corpus.rows <= choice.range_min:
        raise UserError(f"--range-min {choice.range_min}: {name} has only {corpus.rows:,} rows")


def check_rows(corpus: MinedCorpus, positives: Positives, name: str) -> None:
    """Refuses pairs that name rows the corpus lacks, since their positives could become negatives."""
    named = positives.named()
    present = np.zeros(len(named), bool)
    for rows in corpus.all_rows() if len(named) else ():
        places = np.minimum(np.searchsorted(named, rows), len(named) - 1)
        present[places[named[places] == rows]] = True
    if not present.all():
        row = int(named[np.argmin(present)])
        raise UserError(f"--pairs: names row {row:,} of the corpus, but no row of {name} ({corpus.rows:,}) has it")


def _short(score: float) -> float:
    """A float32 with no more digits than it needs."""
    return float(str(np.float32(score)))


def _shortened(scores: Float32[np.ndarray, " H"]) -> list[float]:
    return [_short(score) for score in scores.tolist()]
