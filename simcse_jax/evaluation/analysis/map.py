"""Sentence embeddings on a map of two dimensions, one model or several on the same map (isotropy paper, Figure 1).

One projection takes all models' normalized embeddings, so a narrow cone stays a small cloud next to a wide one. PCA
takes each model's around their own mean.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from simcse_jax.errors import installed
from simcse_jax.evaluation.analysis.isotropy import mean_cosine, normalize

NEIGHBOURS = 15  # UMAP's own default; of no more rows than these it makes no map
PLANE = 2
MAP = "map"  # the name of the file, or its beginning


class Map(NamedTuple):
    """A map of sentence embeddings."""

    title: str  # which projection
    axes: tuple[str, str]
    points: dict[str, np.ndarray]  # (N, 2), by the models' names
    cosines: dict[str, float]  # the mean cosine of two different rows, before the projection


def project(embeddings: Mapping[str, np.ndarray], *, umap: bool | None = None, seed: int = 0) -> Map:
    """Projects the rows (N, D) of all models together: by UMAP (None: if installed), or PCA, as for very few rows.

    UMAP keeps neighbours near each other, and the sizes of clouds mean little on its map; of PCA they can be compared.
    """
    rows = {name: normalize(part) for name, part in embeddings.items()}
    stacked = np.concatenate(list(rows.values()))
    use_umap = (installed("umap") if umap is None else umap) and len(stacked) > NEIGHBOURS
    centred = np.concatenate([part - part.mean(axis=0) for part in rows.values()])
    points, title, axes = _umap(stacked, seed) if use_umap else _pca(centred)
    parts = np.split(points, np.cumsum([len(part) for part in rows.values()])[:-1])
    cosines = {name: float(mean_cosine(part)) for name, part in rows.items()}
    return Map(title, axes, dict(zip(rows, parts, strict=True)), cosines)


def project_by_size(embeddings: Mapping[str, np.ndarray]) -> dict[str, Map]:
    """A map for each size of embeddings, since a projection takes one: `map`, or `map_384` and so on of several."""
    sizes: dict[int, dict[str, np.ndarray]] = {}
    for name, rows in embeddings.items():
        sizes.setdefault(rows.shape[1], {})[name] = rows
    return {MAP if len(sizes) == 1 else f"{MAP}_{size}": project(parts) for size, parts in sizes.items()}


def _pca(centred: np.ndarray) -> tuple[np.ndarray, str, tuple[str, str]]:
    _, values, directions = np.linalg.svd(centred, full_matrices=False)
    share = values**2 / max(np.sum(values**2), 1e-12)
    # A direction and its opposite are the same; this one is chosen.
    plane = directions[:PLANE] * np.sign(directions[range(PLANE), np.abs(directions[:PLANE]).argmax(axis=1)])[:, None]
    first, second = (f"principal component {n + 1} ({100 * share[n]:.0f}% of the variance)" for n in range(PLANE))
    return centred @ plane.T, "PCA", (first, second)


def _umap(rows: np.ndarray, seed: int) -> tuple[np.ndarray, str, tuple[str, str]]:
    import warnings

    from umap import UMAP

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a seed makes it run on one core
        points = UMAP(n_neighbors=NEIGHBOURS, metric="cosine", random_state=seed).fit_transform(rows)
    return np.asarray(points, np.float64), "UMAP (sizes and distances are not to scale)", ("UMAP 1", "UMAP 2")
