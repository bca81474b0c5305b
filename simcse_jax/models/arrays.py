"""The types of arrays that a model accepts. Shapes are written in jaxtyping's notation: `Int[AnyArray, "B T"]`."""

from typing import TypeVar

import jax
import numpy as np

AnyArray = jax.Array | np.ndarray
ArrayType = TypeVar("ArrayType", bound=AnyArray)  # the result has the argument's type
CONTEXT = "context"  # the name of attention's result, which a layer that is computed again keeps
