"""The geometry of sentence embeddings on STS-B: alignment and uniformity, singular values, cosines by gold group.

Pairs rated above 4 are the positives, and all sentences of the set are the data, each as often as it occurs.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from simcse_jax.choices import GEOMETRY
from simcse_jax.errors import UserError
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.analysis import spectrum
from simcse_jax.evaluation.analysis.isotropy import normalize
from simcse_jax.evaluation.analysis.spectrum import Spectrum
from simcse_jax.evaluation.evaluator import Embed, Encode, by_task, encode_once
from simcse_jax.host.storage import local_path

SPLITS = ("dev", "test", "all")
POSITIVE = 4.0  # pairs rated above it are positives
TOP = 5.0  # of STS-B's scale, which starts at 0
GROUPS = ("0–1", "1–2", "2–3", "3–4", "4–5")  # by gold score; a whole number is in the group above it, 5 in the last
GRID = np.linspace(-1.0, 1.0, 201)  # the cosines at which densities are given
BANDWIDTHS = (0.01, 0.5)  # of a density: for groups with nearly equal cosines, and for groups of two or three pairs


class Group(NamedTuple):
    """The cosine similarities of the pairs of one gold group; mean, std and density are None for an empty group."""

    pairs: int = 0
    mean: float | None = None
    std: float | None = None  # with n
    density: Float[np.ndarray, " G"] | None = None  # at `GRID`


class Geometry(NamedTuple):
    """The measurements of one model."""

    alignment: float
    uniformity: float
    spearman: float  # of all pairs, × 100
    spectrum: Spectrum
    groups: dict[str, Group]  # by the names of `GROUPS`

    def numbers(self) -> dict[str, float]:
        """All that is one number, for JSON."""
        numbers = {name: round(float(getattr(self, name)), 6) for name in (*GEOMETRY, "spearman")}
        return numbers | self.spectrum.rounded()

    def to_json(self) -> dict[str, Any]:
        """Everything, for JSON."""
        groups = {
            name: {field: _rounded(value) for field, value in group._asdict().items()}
            for name, group in self.groups.items()
        }
        return {**self.numbers(), "singular_values": _rounded(self.spectrum.singular_values), "groups": groups}


def read(data: str, split: str = "test") -> sts.Pairs:
    """STS-B's pairs, of SentEval's folder ("all": train, dev and test together), or those of a file, scored 0 to 5."""
    names = ("train", "dev", "test") if split == "all" and local_path(data).is_dir() else (split,)
    parts = [pairs for name in names for pairs in sts.read(data, [sts.DEVELOPMENT], name)[0].values()]
    first = [sentence for pairs in parts for sentence in pairs.first]
    second = [sentence for pairs in parts for sentence in pairs.second]
    gold = np.concatenate([pairs.gold for pairs in parts])
    if gold.min() < 0 or gold.max() > TOP:
        raise UserError(
            f"{data}: has scores from {gold.min():g} to {gold.max():g}; they must be from 0 to 5, as STS-B's"
        )
    if not np.any(gold > POSITIVE):
        raise UserError(f"{data}: no pair is rated above 4, so there are no positives to measure alignment on")
    return sts.Pairs(first, second, gold, {})


def measure(encode: Encode, pairs: sts.Pairs, temperature: float | None = None) -> Geometry:
    """Measures one encoder, with the terms of its objective if that has a temperature."""
    first, second = (normalize(side) for side in encode_once(encode, (pairs.first, pairs.second)))
    everything = np.concatenate([first, second])
    positive = pairs.gold > POSITIVE
    cosines = np.sum(first * second, axis=1)
    return Geometry(
        alignment(first[positive], second[positive]),
        uniformity(everything),
        sts.spearman(cosines, pairs.gold),
        spectrum.measure(everything, (first[positive], second[positive]), temperature),
        cosine_groups(cosines, pairs.gold),
    )


@dataclasses.dataclass(frozen=True)
class Plane:
    """Alignment and uniformity alone, as an evaluator of a run."""

    tasks: dict[str, sts.Pairs]  # one

    def __call__(self, embed: Embed) -> dict[str, float]:
        """The numbers of one model."""
        return by_task(_plane, embed, self.tasks)


def _plane(encode: Encode, tasks: dict[str, sts.Pairs]) -> dict[str, float]:
    (pairs,) = tasks.values()
    first, second = encode_once(encode, (pairs.first, pairs.second))
    positive = pairs.gold > POSITIVE
    apart = uniformity(np.concatenate([first, second]))
    return {"alignment": round(alignment(first[positive], second[positive]), 6), "uniformity": round(apart, 6)}


def alignment(first: Float[np.ndarray, "P D"], second: Float[np.ndarray, "P D"]) -> float:
    """ℓ_align = E ‖f(x) − f(x⁺)‖² over positive pairs of any length (SimCSE, eq. 2); 0 at best, 4 at worst."""
    return float(np.mean(np.sum((normalize(first) - normalize(second)) ** 2, axis=1)))


def uniformity(embeddings: Float[np.ndarray, "N D"], block: int = 1024) -> float:
    """ℓ_uniform = log E exp(−2 ‖f(x) − f(y)‖²) (SimCSE, eq. 3); lower is more uniform, 0 if all are the same.

    The mean is over the pairs of different rows, as in the code of Wang and Isola (2020), a `block` at a time.
    """
    rows, total = normalize(embeddings), 0.0
    count = len(rows)
    for start in range(0, count, block):
        for other in range(start, count, block):
            cosines = rows[start : start + block] @ rows[other : other + block].T
            kernel = np.exp(4.0 * cosines - 4.0)  # ‖a − b‖² = 2 − 2 a·b
            total += np.sum(np.triu(kernel, 1) if start == other else kernel)
    return float(np.log(total / (count * (count - 1) / 2)))


def cosine_groups(cosines: Float[np.ndarray, " P"], gold: Float[np.ndarray, " P"]) -> dict[str, Group]:
    """Cosine similarities by gold score from 0 to 5, in five groups (SimCSE, Figure G.1), also empty ones."""
    number = np.minimum(gold.astype(int), len(GROUPS) - 1)
    groups = {}
    for index, name in enumerate(GROUPS):
        part = cosines[number == index]
        groups[name] = Group(len(part), part.mean(), part.std(), density(part)) if len(part) else Group()
    return groups


def density(cosines: Float[np.ndarray, " P"], grid: Float[np.ndarray, " G"] = GRID) -> Float[np.ndarray, " G"]:
    """A Gaussian kernel density estimate of cosine similarities, with Scott's bandwidth, within `BANDWIDTHS`.

    The parts of a kernel beyond −1 and 1 are reflected, so that the density of [−1, 1] integrates to 1.
    """
    spread = np.std(cosines, ddof=1) if len(cosines) > 1 else 0.0
    bandwidth = np.clip(spread * len(cosines) ** -0.2, *BANDWIDTHS)
    centres = np.concatenate([cosines, 2.0 - cosines, -2.0 - cosines])
    kernels = np.exp(-0.5 * ((grid[:, None] - centres) / bandwidth) ** 2)
    return kernels.sum(axis=1) / (len(cosines) * bandwidth * np.sqrt(2 * np.pi))


def _rounded(value: Any) -> Any:
    return None if value is None else np.round(value, 6).tolist()
