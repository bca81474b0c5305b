"""The rank bottleneck of Barlow Twins: the rank of the dimensions' correlation in a batch (SimCSE++, section 4.2).

With N sentences it is at most min(N, D); M artificial rows raise the bound to min(N + M, D).
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float64

from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis import page
from simcse_jax.evaluation.analysis.page import PageSection
from simcse_jax.evaluation.analysis.spectrum import effective_rank
from simcse_jax.evaluation.evaluator import check_finite
from simcse_jax.evaluation.plotting import Pictures, add_grid, add_legend, new_figure, panels, shortened, styles
from simcse_jax.evaluation.sts import aligned

# How the dimensions are correlated, and what that is.
READINGS = {
    "paper": "equation 4: cosines of the columns, not centred",
    "released": "as the released code: columns batch-normalized over all rows, hence centred, which takes one rank",
}
EPSILON = 1e-5  # that PyTorch's batch norm adds to a variance
RANK = "rank.json"
HEADER = ("batch", "artificial rows", "at most", "rank", "effective rank")
PAPER = "“SimCSE++: Improving Contrastive Learning for Sentence Embeddings from Two Perspectives” (Xu et al., 2023)"


class Rank(NamedTuple):
    """The rank of the correlation matrices of some batches."""

    batch: int  # N sentences
    artificial: int  # M rows
    reading: str  # of `READINGS`
    bound: int  # that the rank cannot exceed: min(N + M, D); centring takes one from N + M
    ranks: list[int]  # numerical, by NumPy's default tolerance, one a batch
    effective_ranks: list[float]  # one a batch


class Ranks(NamedTuple):
    """The ranks of one model."""

    name: str
    dimensions: int
    ranks: list[Rank]


def correlation(
    view: Float[np.ndarray, "N D"], artificial: Float[np.ndarray, "M D"], reading: str = "paper"
) -> Float64[np.ndarray, "D D"]:
    """The correlation of each dimension with each, of two equal views.

        C_cd = Σ_i z_ic z_id / ( √Σ_i z_ic² √Σ_i z_id² )

    SimCSE++, equation 4; i runs over the N sentences and the M artificial rows. With the reading `released` z is
    centred first, by its mean over these rows, and (N + M) · 1e-5 is added under the roots, as PyTorch's batch norm
    does. A dimension without any variation correlates with none.

    Args:
      view: z, the embeddings of a batch.
      artificial: rows of N(0, 1); M may be 0.
      reading: of `READINGS`.
    """
    z = np.concatenate([view, artificial]).astype(np.float64)
    added = 0.0
    if reading == "released":
        z, added = z - z.mean(axis=0), EPSILON * len(z)
    norms = np.sqrt(np.sum(z * z, axis=0) + added)
    columns = np.divide(z, norms, out=np.zeros_like(z), where=norms > 0)
    return columns.T @ columns


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
    size = check_finite(embeddings).shape[1]
    tolerance = size * np.finfo(np.float64).eps  # that of `numpy.linalg.matrix_rank`, which would decompose once more
    measured = []
    for reading, batch in itertools.product(READINGS, sizes):
        drawn = draw(len(embeddings), batch, batches, seed)
        for count in artificial:
            spectra = []
            for place, chosen in enumerate(drawn):
                rows = np.random.default_rng((seed, batch, place)).normal(size=(max(artificial), size))[:count]
                # The absolute eigenvalues of a symmetric matrix are its singular values.
                spectra.append(np.abs(np.linalg.eigvalsh(correlation(embeddings[chosen], rows, reading))))
            bound = min(batch + count - (reading == "released"), size)
            ranks = [int(np.count_nonzero(values > values.max() * tolerance)) for values in spectra]
            effective = [round(effective_rank(values), 3) for values in spectra]
            measured.append(Rank(batch, count, reading, bound, ranks, effective))
    return measured


def rows(ranks: Sequence[Rank], reading: str) -> list[list[str]]:
    """The cells of a table, by `HEADER`: a rank is that of all batches, or its lowest and highest."""
    of_reading = [rank for rank in ranks if rank.reading == reading]
    return [[*map(str, (rank.batch, rank.artificial, rank.bound)), *_shown(rank)] for rank in of_reading]


def table(ranks: Ranks) -> str:
    """The table for a terminal, a part for each reading."""
    parts = [
        (f"{name} ({meaning})", aligned([list(HEADER), *rows(ranks.ranks, name)])) for name, meaning in READINGS.items()
    ]
    return "\n".join(itertools.chain(*parts))


def summarize(models: Mapping[str, Ranks]) -> str:
    """The first batch size without artificial rows, in a sentence a model."""
    sentences = []
    for label, ranks in models.items():
        first = ranks.ranks[0]
        rank, effective = _shown(first)
        added = f" and {first.artificial} artificial rows" * (first.artificial > 0)
        sentences.append(
            f"{label}: with {first.batch} sentences{added} the correlation of {ranks.dimensions} dimensions has rank "
            f"{rank} (at most {first.bound}) and effective rank {effective}."
        )
    return " ".join(sentences)


def write(
    models: Mapping[str, Ranks], folder: Path, *, data: str, about: Mapping[str, Any], versions: Mapping[str, str]
) -> list[str]:
    """Writes `rank.json`, the picture and `report.html`, all or none; the names of the files."""
    listed = [
        {"model": ranks.name, "label": label, "dimensions": ranks.dimensions}
        | {"ranks": [rank._asdict() for rank in ranks.ranks]}
        for label, ranks in models.items()
    ]
    drawn = picture(models, data)
    tables = [
        page.table(f"{label}, {reading}", HEADER, rows(ranks.ranks, reading))
        for label, ranks in models.items()
        for reading in READINGS
    ]
    parts = {"What was measured": {"data": data, **about}, "Readings": READINGS, "Versions": versions}
    sections = [
        page.picture_section("rank", {"rank": drawn}),
        page.picture_section("ranks", {}, more="".join(tables)),
        PageSection("How it was measured", f"The claim is that of {PAPER}, section 4.2.", page.facts(parts)),
    ]
    part = page.part("rank", "The rank of the dimensions' correlation", [summarize(models)], sections)
    numbers = {RANK: {"data": data, "about": dict(about), "models": listed}}
    return page.write(folder, numbers, {"rank": drawn}, {"rank": part})


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
                panel.plot(x, [np.mean(rank.ranks) for rank in of_batch], label=name, **style)
                style |= {"linestyle": "--", "markerfacecolor": "white"}
                effective = [np.mean(rank.effective_ranks) for rank in of_batch]
                panel.plot(x, effective, label=f"{name}, effective rank", **style)
            panel.set_title(shortened(label, 38), fontsize=9, loc="left")
            panel.set_ylim(bottom=0)
            panel.set_xlabel("artificial rows")
            panel.set_ylabel("rank (mean of the batches)")
            add_grid(panel)
        add_legend(figure)
    return pictures


def _shown(rank: Rank) -> tuple[str, str]:
    """The rank of the batches, or its lowest and highest, and their mean effective rank."""
    low, high = min(rank.ranks), max(rank.ranks)
    return str(low) if low == high else f"{low}–{high}", f"{np.mean(rank.effective_ranks):.1f}"
