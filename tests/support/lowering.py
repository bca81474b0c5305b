"""Cheaper lowering, for the tests alone."""

import contextlib
import functools
import itertools

PROGRAMS = 100  # that share a context; what it remembers of them goes with it


def share_contexts() -> None:
    """One MLIR context serves many programs, instead of one each.

    JAX loads all dialects into every context, in 4 ms, which is longer than the rest takes for a program of a single
    operation. The name is private: with a JAX without it nothing changes.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from jax._src.interpreters import mlir

        make = mlir.make_ir_context
        context = functools.lru_cache(maxsize=1)(lambda number: make())
        programs = itertools.count()
        mlir.make_ir_context = lambda: context(next(programs) // PROGRAMS)
