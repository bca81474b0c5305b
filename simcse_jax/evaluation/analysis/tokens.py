"""Which tokens of which sentences are measured, determined before any is encoded.

A unit has an embedding of its own: a token, or a word of several tokens. A type is a distinct unit. Shapes: N
sentences, T tokens and U units of a sentence, K types, L layers, D hidden size.
"""

import collections
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from typing import Protocol as Interface

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis import change
from simcse_jax.evaluation.analysis.protocol import Protocol

Type = tuple[int, ...]  # token ids

CHUNK = 4096  # sentences tokenized, and encoded, at once


class TokenEncoder(Interface):
    """What the analysis needs of a model; `simcse_jax.encoding.tokens` has one."""

    def tokenize(self, sentences: Sequence[str]) -> tuple[list[tuple[np.ndarray, np.ndarray]], int]:
        """Each sentence's token ids and their words' numbers (T,), −1 for a special token; how many were cut."""

    def token(self, number: int) -> str:
        """The text of a token id."""

    def hidden_states(self, sentences: Sequence[str]) -> Iterator[tuple[int, np.ndarray]]:
        """Rows in any order, each with (L + 1, T or more, D)."""


class Units(NamedTuple):
    """The units of a sentence."""

    types: list[Type]  # U
    tokens: np.ndarray  # places of their tokens in the sentence
    starts: np.ndarray  # (U,), where in `tokens` each unit starts


class Survey(NamedTuple):
    """What a model's tokenizer makes of the data."""

    protocol: Protocol
    sentences: list[str]  # N, those that are measured
    units: np.ndarray  # (N,), how many each has
    numbers: dict[Type, int]  # the K types that have a self-similarity, the most frequent first
    names: list[str]  # their texts
    counts: np.ndarray  # (K,), how often they occur
    special: np.ndarray  # (K,), whether they stand around a sentence
    sample: dict[int, int]  # the anisotropy baseline: which unit of which sentence (`draw`)
    cut: int  # how many sentences were longer than the model takes
    digest: str  # of the texts of all tokens in order


def find_units(ids: np.ndarray, words: np.ndarray, protocol: Protocol) -> Units:
    """The units of a sentence of T tokens.

    Args:
      ids: (T,) token ids.
      words: (T,) numbers of their words, −1 for a special token, which is a unit of its own.
    """
    special = words < 0
    tokens = np.flatnonzero(~special) if protocol.special_tokens == "out" else np.arange(len(ids))
    starts = np.arange(len(tokens))
    if protocol.units == "words" and len(tokens):
        own = words[tokens]
        starts = np.flatnonzero(np.r_[True, (own[1:] != own[:-1]) | (own[1:] < 0)])
    parts = ids[tokens].tolist()
    ends = [*starts[1:].tolist(), len(parts)]
    return Units(
        [tuple(parts[a:b]) for a, b in zip(starts.tolist(), ends, strict=True)] if parts else [], tokens, starts
    )


def survey(encoder: TokenEncoder, sentences: Sequence[str], protocol: Protocol, where: str = "the data") -> Survey:
    """Tokenizes the data and counts; blank sentences are left out."""
    texts = [sentence for sentence in sentences if sentence.strip()]
    texts = list(dict.fromkeys(texts)) if protocol.repeated_sentences == "drop" else texts
    _check_enough(len(texts), where)
    counts: collections.Counter[Type] = collections.Counter()
    contexts: collections.Counter[Type] = collections.Counter()
    special: set[Type] = set()
    units, cut, digest, text_of = [], 0, hashlib.sha256(), {}
    for start in range(0, len(texts), CHUNK):
        tokenized, cut_here = encoder.tokenize(texts[start : start + CHUNK])
        cut += cut_here
        for ids, words in tokenized:
            types = find_units(ids, words, protocol).types
            units.append(len(types))
            counts.update(types)
            contexts.update(dict.fromkeys(types, 1) if protocol.occurrences == "first" else types)
            special.update((number,) for number in ids[words < 0].tolist())
            for number in ids.tolist():
                if number not in text_of:
                    text_of[number] = encoder.token(number)
            digest.update("\n".join([*map(text_of.__getitem__, ids.tolist()), "", ""]).encode())
    _check_enough(int(np.count_nonzero(units)), where)
    frequent = [(type_, n) for type_, n in counts.most_common() if n >= protocol.min_count and contexts[type_] > 1]
    if not frequent:
        raise UserError(
            f"{where}: no token occurs {protocol.min_count} times and in two contexts, so there is no "
            "self-similarity; give more sentences, or a lower --min-count"
        )
    frequent = frequent[: protocol.max_types]
    return Survey(
        protocol=protocol,
        sentences=texts,
        units=np.array(units),
        numbers={type_: number for number, (type_, _) in enumerate(frequent)},
        names=[_name([text_of[number] for number in type_]) for type_, _ in frequent],
        counts=np.array([n for _, n in frequent]),
        special=np.array([type_ in special for type_, _ in frequent]),
        sample=draw(np.array(units), protocol.samples, protocol.seed),
        cut=cut,
        digest=digest.hexdigest(),
    )


def check_same_tokens(surveys: Mapping[str, Survey]) -> None:
    """Makes sure that models can be compared token by token."""
    (first, one), *others = surveys.items()
    for other, found in others:
        if found.digest != one.digest:
            raise UserError(
                f"{first} and {other} have different tokenizers, so their tokens cannot be compared: of the same "
                f"sentences they make different tokens, {one.units.sum():,} and {found.units.sum():,}"
            )


def check_in_common(one: Survey, other: Survey) -> None:
    """Checks that the changes in two pairs of models can be correlated; their vocabularies may differ."""
    first, second = (
        {name for name, special in zip(survey.names, survey.special, strict=True) if not special}
        for survey in (one, other)
    )
    change.check_enough(len(first & second))


def draw(units: np.ndarray, count: int, seed: int) -> dict[int, int]:
    """One random unit each of `count` random sentences, so that long sentences count no more than short ones.

    Args:
      units: (N,), how many units each sentence has.
      count: how many; all sentences that have units, if these are fewer.

    Returns:
      The units' places in their sentences, by the sentences' rows.
    """
    generator = np.random.default_rng(seed)
    having = np.flatnonzero(units)
    rows = np.sort(generator.choice(having, min(count, len(having)), replace=False))
    return dict(zip(rows.tolist(), generator.integers(0, units[rows]).tolist(), strict=True))


def _check_enough(sentences: int, where: str) -> None:
    if sentences < 3:  # two have one pair of tokens, whose cosine correlates with nothing
        found = f"{sentences or 'no'} sentence{'s' * (sentences != 1)}"
        raise UserError(f"{where}: has {found} to measure; an analysis takes three")


def _name(texts: list[str]) -> str:
    return "".join([texts[0], *(text.removeprefix("##") for text in texts[1:])])
