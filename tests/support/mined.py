"""Models with given embeddings, and corpora of them, for tests of mining."""

import numpy as np

from simcse_jax.bulk.mining.corpus import MinedCorpus
from simcse_jax.bulk.mining.judge import EncoderJudge
from simcse_jax.bulk.mining.miner import Miner
from simcse_jax.bulk.mining.pairs import Pair, Positives
from simcse_jax.bulk.mining.selection import Choice
from simcse_jax.index.index import Index


class Fixed:
    """Has an embedding of unit length for each text: the same for the same text, query or document."""

    similarity_fn_name = "cosine"

    def __init__(self, seed: int = 0, size: int = 8):
        self._seed, self._size = seed, size

    def encode_query(self, texts):
        drawn = [np.random.default_rng([self._seed, *text.encode()]).normal(size=self._size) for text in texts]
        return np.float32([x / np.linalg.norm(x) for x in drawn])

    encode_document = encode_query


def corpus_of(texts: list[str], model: Fixed, has_text: bool = True) -> MinedCorpus:
    index = Index(model._size)
    index.add(texts, model.encode_document(texts))
    return MinedCorpus(
        lambda queries, count: index.search(queries, min(count, len(index))), len(index), has_text, None, ""
    )


def mined(
    pairs: list[Pair], corpus: MinedCorpus, choice: Choice, model: Fixed, judge: Fixed | None = None
) -> list[dict]:
    return Miner(model, corpus, Positives(iter(pairs)), choice, EncoderJudge(judge) if judge else None).mine(pairs)[0]


def pairs_of(count: int, positives: list[str]) -> list[Pair]:
    return [Pair(row, f"query {row}", positives[row % len(positives)]) for row in range(count)]
