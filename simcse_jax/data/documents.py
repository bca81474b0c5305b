"""Positives from documents: their next sentences (SimCSE, Table 2), or spans of them, as DeCLUTR's.

DeCLUTR is Giorgi et al. 2021, arXiv:2006.03659.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from simcse_jax.data.draws import document_generator
from simcse_jax.data.sources import Examples
from simcse_jax.errors import UserError

# The positive is drawn from this many sentences after the anchor.
REACH = {"next_sentence": 1, "next_3_sentences": 3}
Span = tuple[int, int]  # its first word piece, and the one after its last


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

    SimCSE, Table 2; after Logeswaran and Lee, 2018. Near a document's end, k is uniform over the sentences that are
    left. Every sentence except a document's last is an anchor once, in the order of the text.
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


class Spans(NamedTuple):
    """How spans are drawn. Lengths are in word pieces, without special tokens."""

    anchors: int  # per document
    positives: int  # per anchor
    shortest: int
    longest: int
    tokens: int  # the minimum length of a document


def draw_spans(spans: Spans, length: int, generator: np.random.Generator) -> list[list[Span]]:
    """The spans of a document of `length` word pieces: for each anchor, its own span and those of its positives.

    The document is divided into blocks of `longest` pieces. An anchor lies anywhere in a block of its own, and no
    other anchor has the block or one next to it: anchors are disjoint. Its length is

        ⌊shortest + Beta(4, 2) · (longest − shortest)⌋,

    and a positive's is the same with Beta(2, 4). A positive starts anywhere from its length before the anchor to the
    anchor's end, within the document: it is next to the anchor, overlaps it, or lies inside (DeCLUTR, section 3.2, as
    its released code draws them).
    """
    starts = list(range(0, length - spans.longest + 1, spans.longest))
    reach = spans.longest - spans.shortest
    drawn = []
    for remaining in range(spans.anchors, 0, -1):
        size = int(generator.beta(4, 2) * reach + spans.shortest)
        # As released: with few blocks left, one at an end, which takes only one neighbour along.
        scarce = len(starts) // remaining < remaining
        block = int(generator.integers(2)) * (len(starts) - 1) if scarce else int(generator.integers(len(starts)))
        start = starts[block] + int(generator.integers(spans.longest - size + 1))
        del starts[max(0, block - 1) : block + 2]
        anchor_spans = [(start, start + size)]
        for _ in range(spans.positives):
            size = int(generator.beta(2, 4) * reach + spans.shortest)
            first = generator.integers(max(0, start - size), min(anchor_spans[0][1], length - size) + 1)
            anchor_spans.append((int(first), int(first) + size))
        drawn.append(anchor_spans)
    return drawn


def cut_spans(
    documents: Sequence[str],
    pieces: Callable[[str], np.ndarray],
    text: Callable[[np.ndarray], str],
    spans: Spans,
    seed: int,
    where: str,
) -> Examples:
    """Anchors with their positives, a row for each anchor, document by document.

    A document's spans are drawn once per run, from the seed and the document's number. The released code redraws them
    every epoch, but trains for one.

    Args:
      pieces, text: from a text to its word pieces, and back.
    """
    tokens = [pieces(document) for document in documents]
    short = sum(len(ids) < spans.tokens for ids in tokens)
    if short:
        few = f"fewer than {spans.tokens} word pieces (data.spans.tokens)"
        raise UserError(f"{where}: {short} of {len(tokens)} documents have {few}; leave them out, or set it lower")
    columns: tuple[list[str], ...] = tuple([] for _ in range(1 + spans.positives))
    for number, ids in enumerate(tokens):
        for spans_of_anchor in draw_spans(spans, len(ids), document_generator(seed, number)):
            for column, (first, end) in zip(columns, spans_of_anchor, strict=True):
                column.append(text(ids[first:end]))
    return Examples(columns, 0)
