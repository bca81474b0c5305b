import importlib.util

import numpy as np
import pytest

from simcse_jax.evaluation.analysis.isotropy import normalize
from simcse_jax.evaluation.analysis.map import mean_cosine, project, project_by_size


def cone(spread: float, count: int = 80, size: int = 12, seed: int = 0) -> np.ndarray:
    """Embeddings around one direction, of different lengths."""
    generator = np.random.default_rng(seed)
    return (np.eye(size)[0] + spread * generator.normal(size=(count, size))) * generator.uniform(0.1, 9, (count, 1))


def test_a_map_is_pca_of_directions_and_a_narrow_cone_a_small_cloud_next_to_a_wide_one(monkeypatch):
    parts = {"a": cone(0.3), "b": cone(0.5, count=50, seed=1)}
    units = [normalize(rows) for rows in parts.values()]
    stacked = np.concatenate([rows - rows.mean(axis=0) for rows in units])
    _, lengths, directions = np.linalg.svd(stacked - stacked.mean(axis=0), full_matrices=False)
    plane = (stacked - stacked.mean(axis=0)) @ directions[:2].T
    found = project(parts, umap=False)
    points = np.concatenate(list(found.points.values()))
    assert np.allclose(points, plane * np.sign(np.sum(points * plane, axis=0)), atol=1e-9)
    shares = [f"({100 * share:.0f}% of the variance)" for share in lengths[:2] ** 2 / np.sum(lengths**2)]
    assert [axis[-len(share) :] for axis, share in zip(found.axes, shares, strict=True)] == shares
    assert found.title == "PCA"
    rows = cone(0.4)
    longer = rows * np.linspace(0.5, 7, len(rows))[:, None]
    first, second = (project({"a": part}, umap=False).points["a"] for part in (rows, longer))
    assert np.allclose(first, second)
    cosines = normalize(rows) @ normalize(rows).T
    assert mean_cosine(normalize(rows)) == pytest.approx(cosines[~np.eye(80, dtype=bool)].mean(), abs=1e-12)
    found = project({"a": np.ones((3, 4), np.float32)}, umap=False)
    assert np.allclose(found.points["a"], 0) and found.cosines["a"] == pytest.approx(1)
    found = project({"narrow": cone(0.05), "wide": cone(0.8)}, umap=False)
    sizes = {name: np.linalg.norm(points - points.mean(axis=0), axis=1).mean() for name, points in found.points.items()}
    assert sizes["wide"] > 5 * sizes["narrow"]
    assert found.cosines["narrow"] > 0.9 > found.cosines["wide"]
    assert {points.shape for points in found.points.values()} == {(80, 2)}
    small, large = cone(0.4, size=5), cone(0.4, size=7)
    found = project_by_size({"a": small, "b": large, "c": small[:9]})
    assert {name: list(each.points) for name, each in found.items()} == {"map_5": ["a", "c"], "map_7": ["b"]}
    assert list(project_by_size({"a": small, "c": small})) == ["map"] and project_by_size({}) == {}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert project({"a": cone(0.4)}).title == "PCA"


def test_umap_where_it_is_installed():
    pytest.importorskip("umap", reason="umap-learn is not installed: pip install 'simcse_jax[umap]'")
    first, second = (project({"a": cone(0.2), "b": cone(0.9)}) for _ in range(2))
    assert first.title.startswith("UMAP") and "not to scale" in first.title
    assert all(np.array_equal(first.points[name], second.points[name]) for name in "ab")
    assert np.isfinite(first.points["a"]).all() and first.points["b"].shape == (80, 2)
    assert project({"a": cone(0.2, count=15)}).title == "PCA"
    assert project({"a": cone(0.2, count=16)}).points["a"].shape == (16, 2)
