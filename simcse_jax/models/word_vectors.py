"""Word vectors in the place of an encoder's embeddings: an average of them, such as GloVe's, has no layers."""

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.changes import UNCHANGED, Change
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.dropout import Mask, drop
from simcse_jax.models.padding import Layout
from simcse_jax.models.products import DType


class WordVectors(nnx.Module):
    """The vector of each word, as it is in the table."""

    def __init__(self, config: EncoderConfig, rngs: nnx.Rngs, dtype: DType):
        self.word = nnx.Embed(config.vocab_size, config.hidden_size, rngs=rngs)
        self.dtype = dtype

    def __call__(
        self,
        input_ids: Int[AnyArray, "B T"],
        attention_mask: Int[AnyArray, "B T"],
        layout: Layout,
        mask: Mask | None,
        change: Change = UNCHANGED,
    ) -> Float[Array, "*tokens D"]:
        """The words' vectors, in `layout`; they are not trained, so nothing changes them."""
        assert change is UNCHANGED
        return drop(self.word(layout.to_tokens(jnp.asarray(input_ids))), mask).astype(self.dtype)
