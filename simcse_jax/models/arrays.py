"""The arrays that a model takes from outside. Shapes are written as jaxtyping's: `Int[AnyArray, "B T"]`."""

import jax
import numpy as np

AnyArray = jax.Array | np.ndarray
