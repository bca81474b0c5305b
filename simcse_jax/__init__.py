"""simcse_jax: contrastive sentence encoders in JAX and Flax."""

import importlib
from typing import TYPE_CHECKING, Any

from simcse_jax.host.version import __version__

if TYPE_CHECKING:
    from simcse_jax.commands.api import Run, evaluate, mine, sweep, train
    from simcse_jax.commands.build_index import build_index
    from simcse_jax.commands.encode import encode
    from simcse_jax.commands.overlap import overlap
    from simcse_jax.commands.search import search
    from simcse_jax.encoding.cross_encoder import CrossEncoder
    from simcse_jax.simcse import SimCSE

__all__ = [
    "CrossEncoder",
    "Run",
    "SimCSE",
    "__version__",
    "build_index",
    "encode",
    "evaluate",
    "mine",
    "overlap",
    "search",
    "sweep",
    "train",
]
VERBS = ("build_index", "encode", "overlap", "search")  # each in the module of its name


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `import simcse_jax` does not import JAX.
    if name == "SimCSE":
        from simcse_jax.simcse import SimCSE

        return SimCSE
    if name == "CrossEncoder":
        from simcse_jax.encoding.cross_encoder import CrossEncoder

        return CrossEncoder
    if name in VERBS:
        return getattr(importlib.import_module(f"simcse_jax.commands.{name}"), name)
    if name in __all__:
        from simcse_jax.commands import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__") and name not in __all__)])
