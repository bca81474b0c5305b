"""The rank bottleneck of Barlow Twins: the rank of the dimensions' correlation in a batch (SimCSE++, section 4.2).

The correlation of D dimensions over N sentences is the product of a (D, N) and an (N, D) matrix, so its rank is at most
min(N, D), and the identity, to which Barlow Twins pulls it, has rank D. M artificial rows raise the bound to
min(N + M, D). Here both are measured, on a model's embeddings, and written as lines, JSON, a picture and a page.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float64

from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis import page
from simcse_jax.evaluation.analysis.page import PageSection
from simcse_jax.evaluation.analysis.report import to_json
from simcse_jax.evaluation.analysis.spectrum import effective_rank
from simcse_jax.evaluation.plotting import Pictures, add_grid, add_legend, new_figure, panels, shortened, styles
from simcse_jax.evaluation.sts import aligned

# How the dimensions are correlated, and what that is.
READINGS = {
    "paper": "equation 4: cosines of the columns, not centred",
    "released": "as the released code: columns batch-normalized over all rows, hence centred, which takes one rank",
}
EPSILON = 1e-5  # that PyTorch's batch norm adds to a variance
RANK, PICTURE = "rank.json", "rank"
HEADER = ("batch", "artificial rows", "at most", "rank", "effective rank")
PAPER = "“SimCSE++: Improving Contrastive Learning for Sentence Embeddings from Two Perspectives” (Xu et al., 2023)"
MEANING = (
    "Barlow Twins pulls the correlation of the dimensions in a batch towards the identity, whose rank is the number of "
    "dimensions. The correlation cannot have a higher rank than the batch has rows, so with 64 sentences it stays far "
    "from it; artificial rows raise the bound."
)


class Rank(NamedTuple):
    """The rank of the correlation matrices of some batches."""

    batch: int  # N sentences
    artificial: int  # M rows
    reading: str  # of `READINGS`
    bound: int  # that the rank cannot exceed
    ranks: list[int]  # numerical, one a batch
    effective_ranks: list[float]  # one a batch
    tolerance: float  # the largest of the batches': singular values up to it count as zero

    def to_json(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return self._asdict() | {"effective_ranks": [round(value, 3) for value in self.effective_ranks]}


def correlation(
    first: Float[np.ndarray, "N D"],
    second: Float[np.ndarray, "N D"],
    artificial: Float[np.ndarray, "M D"],
    reading: str = "paper",
) -> Float64[np.ndarray, "D D"]:
    """The correlation of each dimension of one view with each of the other.

        C_cd = Σ_i z¹_ic z²_id / ( √Σ_i (z¹_ic)² √Σ_i (z²_id)² )

    SimCSE++, equation 4; i runs over the N sentences and the M artificial rows, the same below both views. With the
    reading `released` z is centred first, by its mean over these rows, and (N + M) · 1e-5 is added under the roots, as
    PyTorch's batch norm does. A dimension without any variation correlates with none.

    Args:
      first, second: z¹ and z², the embeddings of a batch.
      artificial: rows of N(0, 1); M may be 0.
      reading: of `READINGS`.
    """

    def columns(view: Float[np.ndarray, "N D"]) -> Float64[np.ndarray, "R D"]:
        z = np.concatenate([view, artificial]).astype(np.float64)
        added = 0.0
        if reading == "released":
            z, added = z - z.mean(axis=0), EPSILON * len(z)
        norms = np.sqrt(np.sum(z * z, axis=0) + added)
        return np.divide(z, norms, out=np.zeros_like(z), where=norms > 0)

    return columns(first).T @ columns(second)


def numerical_rank(singular_values: Float64[np.ndarray, " D"]) -> tuple[int, float]:
    """How many singular values of a (D, D) matrix are above D · ε · the largest one, and that tolerance.

    ε is float64's, 2.2e-16. This is the default of `numpy.linalg.matrix_rank` and of MATLAB's `rank`.
    """
    tolerance = float(len(singular_values) * np.finfo(np.float64).eps * singular_values.max(initial=0.0))
    return int(np.sum(singular_values > tolerance)), tolerance


def bound(batch: int, artificial: int, size: int, reading: str) -> int:
    """The highest rank that a correlation of D dimensions can have: min(N + M, D); centring takes one from N + M."""
    return min(batch + artificial - (reading == "released"), size)


def draw(sentences: int, batch: int, batches: int, seed: int) -> list[np.ndarray]:
    """Random batches: the rows of N different sentences each."""
    if batch > sentences:
        raise UserError(f"--rank {batch}: the data have {sentences:,} different sentences; a batch takes {batch:,}")
    generator = np.random.default_rng((seed, batch))
    return [generator.choice(sentences, batch, replace=False) for _ in range(batches)]


def measure(
    embeddings: Float[np.ndarray, "S D"],
    sizes: Sequence[int],
    artificial: Sequence[int],
    *,
    batches: int,
    seed: int,
) -> list[Rank]:
    """The ranks for every reading, batch size and number of artificial rows.

    Both views are the embeddings themselves, without dropout: the bound is the same.

    Args:
      artificial: M; the first rows of more are those of fewer.
    """
    if not np.all(np.isfinite(embeddings)):
        raise UserError("the model's embeddings are not finite; they have no correlation")
    size = embeddings.shape[1]
    measured = []
    for reading in READINGS:
        for batch in sizes:
            drawn = draw(len(embeddings), batch, batches, seed)
            for count in artificial:
                spectra = []
                for place, chosen in enumerate(drawn):
                    rows = np.random.default_rng((seed, batch, place)).normal(size=(max(artificial), size))[:count]
                    matrix = correlation(embeddings[chosen], embeddings[chosen], rows, reading)
                    spectra.append(np.abs(np.linalg.eigvalsh(matrix)))  # of a symmetric matrix the singular values
                ranks, tolerances = zip(*map(numerical_rank, spectra), strict=True)
                limit = bound(batch, count, size, reading)
                effective = list(map(effective_rank, spectra))
                measured.append(Rank(batch, count, reading, limit, list(ranks), effective, max(tolerances)))
    return measured


class Ranks(NamedTuple):
    """The ranks of one model."""

    name: str
    dimensions: int
    ranks: list[Rank]


def rows(ranks: Sequence[Rank], reading: str) -> list[list[str]]:
    """The cells of a table, by `HEADER`: a rank is that of all batches, or its lowest and highest."""
    return [
        [
            str(rank.batch),
            str(rank.artificial),
            str(rank.bound),
            _span(rank.ranks),
            f"{_mean(rank.effective_ranks):.1f}",
        ]
        for rank in ranks
        if rank.reading == reading
    ]


def table(ranks: Ranks) -> str:
    """The table for a terminal, a part for each reading."""
    lines = []
    for reading, meaning in READINGS.items():
        lines += [f"{reading} ({meaning})", aligned([list(HEADER), *rows(ranks.ranks, reading)])]
    return "\n".join(lines)


def summarize(models: Mapping[str, Ranks]) -> str:
    """The first batch size without artificial rows, in a sentence a model."""
    sentences = []
    for label, ranks in models.items():
        first = ranks.ranks[0]
        added = f" and {first.artificial} artificial rows" * (first.artificial > 0)
        sentences.append(
            f"{label}: with {first.batch} sentences{added} the correlation of {ranks.dimensions} dimensions has rank "
            f"{_span(first.ranks)} (at most {first.bound}) and effective rank {_mean(first.effective_ranks):.1f}."
        )
    return " ".join(sentences)


def write(
    models: Mapping[str, Ranks], folder: Path, *, data: str, about: Mapping[str, Any], versions: Mapping[str, str]
) -> list[str]:
    """Writes `rank.json`, the picture and `report.html`: all or none.

    Returns:
      The names of the files; the page is the last to be written.
    """
    listed = [
        {"model": ranks.name, "label": label, "dimensions": ranks.dimensions}
        | {"ranks": [rank.to_json() for rank in ranks.ranks]}
        for label, ranks in models.items()
    ]
    drawn = picture(models, data)
    files: dict[str, str | bytes] = {RANK: to_json({"data": data, "about": dict(about), "models": listed})}
    files |= {f"{PICTURE}.{kind}": content for kind, content in drawn.items()}
    tables = [
        page.table(f"{label}, {reading}", HEADER, rows(ranks.ranks, reading))
        for label, ranks in models.items()
        for reading in READINGS
    ]
    tolerance = (
        "Rank: the singular values above the largest one times the number of dimensions times 2.2e-16 (float64). "
        "Effective rank: the exponential of the entropy of the singular values (Roy & Vetterli, 2007), the mean over "
        "the batches."
    )
    parts = {"What was measured": {"data": data, **about}, "Readings": READINGS, "Versions": versions}
    sections = [
        PageSection("Rank by artificial rows", "", page.figures({summarize(models): drawn["svg"]})),
        PageSection("All numbers", tolerance, "".join(tables)),
        PageSection("How it was measured", f"The claim is that of {PAPER}, section 4.2.", page.facts(parts)),
    ]
    part = page.part("rank", "The rank of the dimensions' correlation", [summarize(models), MEANING], sections)
    return page.write(folder, files, {"rank": part})


def picture(models: Mapping[str, Ranks], data: str) -> Pictures:
    """Rank and effective rank over the artificial rows, a panel for each model and a line for each batch size."""
    columns = min(3, len(models))
    lines = -(-len(models) // columns)
    with new_figure((1.0 + 3.6 * columns, 1.0 + 2.9 * lines)) as (figure, pictures):
        places = panels(figure, len(models), columns)
        figure.suptitle(f"Rank of the dimensions' correlation, {shortened(data)}", fontsize=10, x=0.01, ha="left")
        for panel, (label, ranks) in zip(places, models.items(), strict=True):
            chosen = [rank for rank in ranks.ranks if rank.reading == "paper"]
            panel.axhline(ranks.dimensions, color="0.5", linewidth=0.8, linestyle=":", label="the identity's rank")
            sizes = {f"{rank.batch} sentences": rank.batch for rank in chosen}
            for (name, batch), style in zip(sizes.items(), styles(sizes).values(), strict=True):
                of_batch = [rank for rank in chosen if rank.batch == batch]
                x, style = [rank.artificial for rank in of_batch], style | {"markersize": 5, "linestyle": "-"}
                panel.plot(x, [_mean(rank.ranks) for rank in of_batch], label=name, **style)
                style |= {"linestyle": "--", "markerfacecolor": "white"}
                effective = [_mean(rank.effective_ranks) for rank in of_batch]
                panel.plot(x, effective, label=f"{name}, effective rank", **style)
            panel.set_title(shortened(label, 38), fontsize=9, loc="left")
            panel.set_ylim(bottom=0)
            panel.set_xlabel("artificial rows")
            panel.set_ylabel("rank (mean of the batches)")
            add_grid(panel)
        add_legend(figure)
    return pictures


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"
