import jax
import jax.numpy as jnp
import numpy as np

from simcse_jax.models.arrays import AnyArray


def test_arrays_are_numpy_s_jax_s_and_traced_ones():
    assert isinstance(np.zeros(1), AnyArray) and isinstance(jnp.zeros(1), AnyArray)
    assert jax.eval_shape(lambda x: jnp.array(isinstance(x, AnyArray)), jnp.zeros(1)).shape == ()
    seen = []
    jax.make_jaxpr(lambda x: seen.append(isinstance(x, AnyArray)) or x)(0.0)
    assert seen == [True] and not isinstance([0.0], AnyArray)
