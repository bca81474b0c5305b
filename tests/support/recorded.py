"""What peers computed, recorded: `make test` compares with it and needs none of them."""

import os
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import pytest

from . import ROOT

FOLDER = ROOT / "tests" / "recorded"
MODE = os.environ.get("PEERS", "recorded")  # or "live", "record"


def twice(*marks: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Makes two tests of one with the argument `live`: a quick one, which reads what peers computed, and a slow one,
    which asks the peers themselves and has these marks, too."""
    live = pytest.param(True, id="live", marks=[pytest.mark.slow, *marks])
    return pytest.mark.parametrize("live", [pytest.param(False, id="recorded"), live])


def recorded(name: str, compute: Callable[[], Mapping[str, np.ndarray]], *peers: str, live: bool = False) -> dict:
    """The arrays that `compute` returns, which imports the packages `peers`, as read from `tests/recorded/NAME.npz`.

    `make record` calls `compute` and writes the file, with the peers' versions in the array "recorded_by";
    `make test-all` and a test that is `live` call it and read no file. Inputs must be the same without the peers: of
    NumPy's generator.
    """
    path = FOLDER / f"{name}.npz"
    if MODE != "recorded" or live:
        try:
            by = ", ".join(f"{peer} {version(peer)}" for peer in peers)
        except PackageNotFoundError as error:
            pytest.skip(f"{error.name} is not installed: requirements-peers.txt")
        arrays = {key: np.asarray(value) for key, value in compute().items()}
        if MODE == "record" and not live:
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(path, recorded_by=by, **arrays)
        return arrays
    with np.load(path) as file:
        return {key: file[key] for key in file.files if key != "recorded_by"}


def sketch(array: np.ndarray, width: int = 2) -> np.ndarray:
    """(…, width): the last axis of a large array along fixed random directions, which differ wherever arrays do."""
    array = np.asarray(array, np.float64)
    size = array.shape[-1]
    return np.float32(array @ (np.random.default_rng(size).normal(size=(size, width)) / size**0.5))


def sketches(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Of each array its sketch, by its name, and its largest number, by "max of" its name."""
    largest = {f"max of {name}": np.float32(np.abs(value).max()) for name, value in arrays.items()}
    return {name: sketch(value) for name, value in arrays.items()} | largest
