"""JAX for files whose declarations are read before it is imported: it is imported when it is first used.

The checks of a config read what an objective declares, and a misspelt field is answered at once.
"""

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import jax as jax
    import jax.numpy as jnp
    from jax import Array as Array
else:

    class Lazy:
        """A module that is imported when something of it is asked for."""

        def __init__(self, name: str):
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(importlib.import_module(self._name), attribute)

    class OfJax(type):
        """Of `Array`, whose instances are JAX's arrays."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, jax.Array)

    class Array(metaclass=OfJax):
        """`jax.Array`, in annotations."""

    jax, jnp = Lazy("jax"), Lazy("jax.numpy")

AnyArray = Array | np.ndarray
