"""Which tokens of which sentences are measured, determined before any is encoded, and by which protocol.

A unit has an embedding of its own: a token, or a word of several tokens. A type is a distinct unit. Shapes: N
sentences, T tokens and U units of a sentence, K types, L layers, D hidden size.
"""

import collections
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, runtime_checkable
from typing import Protocol as Interface

import numpy as np

from simcse_jax.errors import UserError, option

# The choices that the isotropy paper leaves open: the values of each, the default first, with their meanings. The
# defaults come closest to its figures (docs/background/results/dynamics.md).
CHOICES = {
    "special_tokens": {
        "in": "the tokens around a sentence, [CLS] and [SEP], are measured like any others",
        "out": "they are left out of every figure",
    },
    "units": {
        "pieces": "the tokens of the model's vocabulary",
        "words": "the text between blanks and punctuation marks: the mean of the embeddings of its pieces",
    },
    "repeated_sentences": {"keep": "a sentence counts as often as it occurs", "drop": "it counts once"},
    "occurrences": {
        "first": "of a token that occurs several times in a sentence the first alone is a context",
        "all": "each is one",
    },
    "average": {
        "types": "self-similarity is the mean over the token types of a type's mean over its pairs",
        "pairs": "it is the mean over all pairs of the same token, so frequent ones weigh most",
    },
    "contributions": {
        "shares": "eq. 6 of each type as a share of its whole, a context paired with itself too; the mean over types",
        "types": "eq. 6 of each type over pairs of different contexts; the mean over types",
        "pairs": "eq. 6 over all pairs of different contexts of the same token",
    },
    "ranking": {
        "products": "informativity first removes dimensions large by eq. 6 without its norms over random pairs",
        "cosines": "it goes by eq. 6 over random pairs",
        "self_similarity": "it goes by eq. 6 over pairs of the same token, as `contributions` says",
    },
}
FREQUENT = 400  # tokens that are compared, the most frequent
LISTED = 10  # tokens of a column of Table 2
FEWEST = 10  # tokens that a correlation is looked at for: it is perfect of two, and high of a few by chance
Type = tuple[int, ...]  # token ids
CHUNK = 4096  # sentences tokenized, and encoded, at once


def _choice(name: str) -> Any:
    meanings = "; ".join(f"{value}: {meaning}" for value, meaning in CHOICES[name].items())
    return dataclasses.field(default=next(iter(CHOICES[name])), metadata={"help": meanings})


def _number(default: int, least: int, meaning: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": meaning, "least": least})


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How token embeddings are measured.

    `special_tokens` to `ranking`: see `CHOICES`.
    """

    special_tokens: str = _choice("special_tokens")
    units: str = _choice("units")
    repeated_sentences: str = _choice("repeated_sentences")
    occurrences: str = _choice("occurrences")
    average: str = _choice("average")
    contributions: str = _choice("contributions")
    ranking: str = _choice("ranking")
    min_count: int = _number(5, 2, "Token types that occur less often in the data have no self-similarity.")
    max_types: int = _number(5000, 1, "The most types, by frequency, that have one; memory grows with them.")
    samples: int = _number(1000, 3, "Tokens of the anisotropy baseline, each from a different sentence.")
    seed: int = _number(0, 0, "The seed of that sample.")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, choices = getattr(self, field.name), CHOICES.get(field.name)
            least = field.metadata.get("least", 0)
            if value not in choices if choices else value < least:
                allowed = f"one of {', '.join(choices)}" if choices else f"{least} or more"
                raise UserError(f"{option(field.name, value)}: must be {allowed}")


@dataclasses.dataclass(frozen=True)
class TokenChange:
    """The change of one token type."""

    token: str
    count: int  # how often it occurs in the data
    change: float
    special: bool  # whether it stands around a sentence


class ChangeCorrelation(NamedTuple):
    """The correlation of two pairs of models over the n most frequent tokens."""

    by_n: list[float | None]  # of n = 1, 2, …; None where there is none
    best_n: int
    best: float


def most_changed(changes: Sequence[TokenChange], count: int = LISTED) -> tuple[list[str], list[str]]:
    """The tokens that became most more contextualized (negative changes), and most less (positive ones): Table 2."""
    ordered = sorted(changes, key=lambda token: token.change)
    more = [token.token for token in ordered if token.change < 0]
    less = [token.token for token in reversed(ordered) if token.change > 0]
    return more[:count], less[:count]


def correlation(first: Sequence[TokenChange], second: Sequence[TokenChange]) -> ChangeCorrelation:
    """argmax_n corr(ssc_1[:n], ssc_2[:n]), eq. 11, of two pairs of models, with Pearson's correlation.

    Tokens are the same by their texts. Special ones, whose frequency is that of sentences, are left out (appendix E).
    """
    other = {token.token: token.change for token in second if not token.special}
    both = [(token.change, other[token.token]) for token in first if not token.special and token.token in other]
    if len(both) < FEWEST:
        raise UserError(f"two pairs of models have {len(both)} frequent tokens in common; a correlation takes {FEWEST}")
    x, y = np.array(both).T
    by_n = [
        float(np.corrcoef(x[:n], y[:n])[0, 1]) if np.ptp(x[:n]) and np.ptp(y[:n]) else None
        for n in range(1, len(both) + 1)
    ]
    defined = [(r, -n) for n, r in enumerate(by_n, 1) if n >= FEWEST and r is not None]
    if not defined:
        raise UserError("in one of the two pairs of models no token's self-similarity changes; nothing correlates")
    best, best_n = max(defined)  # of equal ones the first
    return ChangeCorrelation(by_n, -best_n, best)


@runtime_checkable
class TokenEncoder(Interface):
    """A model as the analysis needs it; `simcse_jax.encoding.embedder` has one."""

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
    """The data as a model's tokenizer splits it."""

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
    """The units of a sentence of T tokens; the number of a word is −1 for a special token, a unit of its own."""
    special = words < 0
    tokens = np.flatnonzero(~special) if protocol.special_tokens == "out" else np.arange(len(ids))
    starts = np.arange(len(tokens))
    if protocol.units == "words" and len(tokens):
        word_numbers = words[tokens]
        starts = np.flatnonzero(np.r_[True, (word_numbers[1:] != word_numbers[:-1]) | (word_numbers[1:] < 0)])
    ids = ids[tokens]
    types = [tuple(part.tolist()) for part in np.split(ids, starts[1:])] if len(ids) else []
    return Units(types, tokens, starts)


def survey(encoder: TokenEncoder, sentences: Sequence[str], protocol: Protocol, where: str = "the data") -> Survey:
    """Tokenizes the data and counts; blank sentences are left out."""
    texts = [sentence for sentence in sentences if sentence.strip()]
    texts = list(dict.fromkeys(texts)) if protocol.repeated_sentences == "drop" else texts
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
    if (measured := np.count_nonzero(units)) < 3:  # two have one pair of tokens, whose cosine correlates with nothing
        raise UserError(f"{where}: has {measured} sentences to measure; an analysis takes three")
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
    """Checks that models can be compared token by token."""
    (first, survey), *rest = surveys.items()
    for other, other_survey in rest:
        if other_survey.digest != survey.digest:
            raise UserError(
                f"{first} and {other} have different tokenizers, so their tokens cannot be compared: of the same "
                f"sentences they make different tokens, {survey.units.sum():,} and {other_survey.units.sum():,}"
            )


def draw(units: np.ndarray, count: int, seed: int) -> dict[int, int]:
    """The place of a random unit in each of `count` random sentences, by their rows: long ones count no more."""
    generator = np.random.default_rng(seed)
    having = np.flatnonzero(units)
    rows = np.sort(generator.choice(having, min(count, len(having)), replace=False))
    return dict(zip(rows.tolist(), generator.integers(0, units[rows]).tolist(), strict=True))


def _name(texts: list[str]) -> str:
    return "".join([texts[0], *(text.removeprefix("##") for text in texts[1:])])
