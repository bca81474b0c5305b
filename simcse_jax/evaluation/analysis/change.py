"""How the self-similarity of single tokens changes from one model to another: section 3.1 of the isotropy paper."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simcse_jax.errors import UserError

FREQUENT = 400  # tokens that are compared, the most frequent
LISTED = 10  # tokens of a column of Table 2
FEWEST = 10  # tokens that a correlation is looked at for: it is perfect of two, and high of a few by chance


@dataclasses.dataclass(frozen=True)
class TokenChange:
    """Of one token type."""

    token: str
    count: int  # how often it occurs in the data
    change: float
    special: bool  # whether it stands around a sentence


class Correlation(NamedTuple):
    """Of two pairs of models, over the n most frequent tokens."""

    by_n: list[float | None]  # of n = 1, 2, …; None where there is none
    best_n: int
    best: float


def self_similarity_change(
    tuned: np.ndarray, tuned_anisotropy: float, base: np.ndarray, base_anisotropy: float
) -> np.ndarray:
    """ssc = (ss_f − ani_f) − (ss_v − ani_v), eq. 10: (K,), (K,) to (K,).

    Args:
      tuned, tuned_anisotropy: self-similarity of K types and anisotropy of the fine-tuned model.
      base, base_anisotropy: of the model before.
    """
    return (tuned - tuned_anisotropy) - (base - base_anisotropy)


def most_changed(changes: Sequence[TokenChange], count: int = LISTED) -> tuple[list[str], list[str]]:
    """The tokens that became most more contextualized (negative changes), and most less (positive ones): Table 2."""
    ordered = sorted(changes, key=lambda token: token.change)
    more = [token.token for token in ordered if token.change < 0]
    less = [token.token for token in reversed(ordered) if token.change > 0]
    return more[:count], less[:count]


def correlation(first: Sequence[TokenChange], second: Sequence[TokenChange]) -> Correlation:
    """argmax_n corr(ssc_1[:n], ssc_2[:n]), eq. 11, with Pearson's correlation.

    Tokens are the same by their texts, in the order of the first pair. Special tokens, which vocabularies call
    differently and whose frequency is that of sentences, are left out, as in appendix E.

    Args:
      first, second: of two pairs of models, the most frequent token first.
    """
    other = {token.token: token.change for token in second if not token.special}
    both = [(token.change, other[token.token]) for token in first if not token.special and token.token in other]
    check_enough(len(both))
    x, y = np.array(both).T
    by_n = [None if n < 2 else _pearson(x[:n], y[:n]) for n in range(1, len(both) + 1)]
    known = [(r, -n) for n, r in enumerate(by_n, 1) if n >= FEWEST and r is not None]
    if not known:
        raise UserError("in one of the two pairs of models no token's self-similarity changes; nothing correlates")
    best, best_n = max(known)  # of equal ones the first
    return Correlation(by_n, -best_n, best)


def check_enough(tokens: int) -> None:
    """Makes sure that two pairs of models have enough tokens in common."""
    if tokens < FEWEST:
        raise UserError(
            f"the two pairs of models have {tokens} frequent tokens in common; a correlation takes {FEWEST}"
        )


def _pearson(x: np.ndarray, y: np.ndarray) -> float | None:
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])
