"""simcse_jax: contrastive sentence encoders in JAX and Flax."""

import importlib
from typing import TYPE_CHECKING, Any

from simcse_jax.host.version import __version__

if TYPE_CHECKING:
    from simcse_jax.commands.analyze import analyze
    from simcse_jax.commands.aot import aot
    from simcse_jax.commands.api import Run, sweep, train
    from simcse_jax.commands.build_data import build_data
    from simcse_jax.commands.build_index import build_index
    from simcse_jax.commands.demo import demo
    from simcse_jax.commands.encode import encode
    from simcse_jax.commands.evaluate import evaluate
    from simcse_jax.commands.export import export
    from simcse_jax.commands.geometry import geometry
    from simcse_jax.commands.merge import merge
    from simcse_jax.commands.mine import mine
    from simcse_jax.commands.overlap import overlap
    from simcse_jax.commands.prepare import prepare
    from simcse_jax.commands.runs import list_runs
    from simcse_jax.commands.search import search
    from simcse_jax.commands.serve import serve
    from simcse_jax.encoding.cross_encoder import CrossEncoder
    from simcse_jax.simcse import SimCSE

__all__ = [
    "CrossEncoder", "Run", "SimCSE", "__version__", "analyze", "aot", "build_data", "build_index", "demo", "encode",
    "evaluate", "export", "geometry", "list_runs", "merge", "mine", "overlap", "prepare", "search", "serve", "sweep",
    "train",
]  # fmt: skip
HOMES = {"SimCSE": "simcse", "CrossEncoder": "encoding.cross_encoder", "list_runs": "commands.runs"}
HOMES |= dict.fromkeys(("Run", "sweep", "train"), "commands.api")


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `import simcse_jax` does not import JAX.
    if name in __all__:
        return getattr(importlib.import_module(f"simcse_jax.{HOMES.get(name, f'commands.{name}')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__") and name not in __all__)])
