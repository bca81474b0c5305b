"""An encoder with its pooler and its head: sentences in, one vector each out."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

from simcse_jax.models import parameters
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.changes import UNCHANGED, Change
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.encoder import Encoder, Keys, Rate, linear
from simcse_jax.models.pooling import FIRST_TOKEN, pool
from simcse_jax.models.products import DType


class SentenceEncoder(nnx.Module):
    """Encoder, pooler and, if the model has one, the head: a dense D→D layer with tanh.

    The embeddings and the head are float32, whatever the encoder's `dtype`. A new head has weights
    N(0, 0.02²) and bias zero (SimCSE, section 6.3 and its code).
    """

    def __init__(self, config: EncoderConfig, *, with_head: bool, rngs: nnx.Rngs, dtype: DType = jnp.float32):
        self.encoder = Encoder(config, rngs=rngs, dtype=dtype)
        self.head = linear(config.hidden_size, config.hidden_size, rngs) if with_head else None

    def __call__(
        self,
        input_ids: Int[AnyArray, "B T"],
        attention_mask: Int[AnyArray, "B T"],
        *,
        pooler: str,
        use_head: bool,
        skipped: int = 0,
        dropout_keys: Keys = None,
        dropout_rate: Rate = 0.1,
        most_tokens: int | None = None,
        change: Change = UNCHANGED,
    ) -> Float[Array, "B _D"]:
        """(B, T) token ids to (B, D) embeddings, not normalized.

        See `pool` for `skipped`, and `Encoder.__call__` for the other arguments.
        """
        hidden_states = self.encoder(
            input_ids,
            attention_mask,
            dropout_keys=dropout_keys,
            dropout_rate=dropout_rate,
            most_tokens=most_tokens,
            first_only=pooler in FIRST_TOKEN and not skipped,
            change=change,
        )
        embeddings = pool(hidden_states, attention_mask, pooler, skipped)
        if not use_head:
            return embeddings
        assert self.head is not None
        return jnp.tanh(self.head(embeddings))


Graph = nnx.GraphDef[SentenceEncoder]


def build(
    config: EncoderConfig, with_head: bool, dtype: DType = jnp.float32
) -> tuple[Graph, dict[str, jax.ShapeDtypeStruct]]:
    """The graph and the abstract float32 parameters of a `SentenceEncoder`, without allocating any.

    `dtype` is the type of the encoder's products (see `models.encoder`).
    """
    return parameters.abstract(lambda: SentenceEncoder(config, with_head=with_head, rngs=nnx.Rngs(0), dtype=dtype))
