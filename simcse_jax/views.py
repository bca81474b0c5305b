"""The views of a sentence: which dropout mask each of its encodings gets.

A mask belongs to an example, so its key is folded from what names the example and from nothing else.
"""

import jax


def dropout_keys(seed: jax.Array, step: jax.Array, index: jax.Array, num_views: int) -> jax.Array:
    """A key for each view of each example: folded from (seed, step, index in the global batch, view).

    With them the views have independent masks: unsupervised SimCSE's z and z' (SimCSE, eq. 4).

    Args:
      seed, step: integer scalars, may be traced.
      index: (B,) positions of these examples in the *global* batch, whatever part of it is at hand.
      num_views: V.

    Returns:
      (V, B) typed threefry keys. Threefry and no other: under `vmap`, rbg ignores all keys but one.
    """
    step_key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), step)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(step_key, index)
    return jax.vmap(lambda view: jax.vmap(jax.random.fold_in, (0, None))(keys, view))(jax.numpy.arange(num_views))
