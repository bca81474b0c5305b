"""What peers computed, recorded: `make test` compares with it and needs none of them."""

import os
from collections.abc import Callable, Mapping
from importlib.metadata import version

import numpy as np
import pytest

from . import ROOT

FOLDER = ROOT / "tests" / "recorded"
MODE = os.environ.get("PEERS", "recorded")  # or "live", "record"


def recorded(name: str, compute: Callable[[], Mapping[str, np.ndarray]], *peers: str) -> dict[str, np.ndarray]:
    """The arrays that `compute` returns, which imports the packages `peers`, as read from `tests/recorded/NAME.npz`.

    `make record` calls `compute` and writes the file, with the peers' versions in the array "recorded_by";
    `make test-all` calls it and reads no file. Inputs must be the same without the peers: of NumPy's generator.
    """
    path = FOLDER / f"{name}.npz"
    if MODE != "recorded":
        for peer in peers:
            pytest.importorskip(peer.replace("-", "_"))
        arrays = {key: np.asarray(value) for key, value in compute().items()}
        if MODE == "record":
            path.parent.mkdir(parents=True, exist_ok=True)
            by = ", ".join(f"{peer} {version(peer)}" for peer in peers)
            np.savez_compressed(path, recorded_by=by, **arrays)
        return arrays
    with np.load(path) as file:
        return {key: file[key] for key in file.files if key != "recorded_by"}
