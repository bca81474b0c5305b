"""The arrays that a model takes from outside. Shapes are written as jaxtyping's: `Int[AnyArray, "B T"]`."""

from typing import TypeVar

import jax
import numpy as np

AnyArray = jax.Array | np.ndarray
Kind = TypeVar("Kind", bound=AnyArray)  # the one of them that comes also goes
