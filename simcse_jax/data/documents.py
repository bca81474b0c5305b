"""Next sentences of documents as positives: the training signals that SimCSE's Table 2 compares dropout with."""

from collections.abc import Iterable, Sequence

import numpy as np

# The positive is drawn from this many sentences after the anchor.
REACH = {"next_sentence": 1, "next_3_sentences": 3}


def read_documents(lines: Iterable[str]) -> list[list[str]]:
    """Documents, each a list of sentences: one sentence per line, and blank lines between documents."""
    documents: list[list[str]] = [[]]
    for line in lines:
        if sentence := line.strip():
            documents[-1].append(sentence)
        elif documents[-1]:
            documents.append([])
    return [document for document in documents if document]


def next_sentences(
    documents: Iterable[Sequence[str]], reach: int, generator: np.random.Generator
) -> tuple[list[str], list[str]]:
    """Pairs (x_i, x_{i+k}) of sentences of one document, k drawn uniformly from 1 … `reach`.

    "Next 3 sentences: randomly sample one from the next 3 sentences" (SimCSE, Table 2; after Logeswaran and
    Lee, 2018). Near a document's end, k is uniform over the sentences that are left. Every sentence except a
    document's last is an anchor once.

    Args:
      documents: each a list of sentences in their order.
      reach: 1 for the next sentence, 3 for the next three.
      generator: draws k.

    Returns:
      Anchors and positives, in the order of the text.
    """
    anchors: list[str] = []
    positives: list[str] = []
    for document in documents:
        last = len(document) - 1
        following = np.minimum(reach, last - np.arange(last))
        ahead = generator.integers(1, following, endpoint=True)
        anchors += document[:last]
        positives += [document[i + k] for i, k in enumerate(ahead.tolist())]
    return anchors, positives
