"""An encoder with its convolutions, pooler, head and modules: sentences in, one vector each out."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from simcse_jax.models import convolutions, parameters
from simcse_jax.models import modules as arithmetic
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig, Module
from simcse_jax.models.encoder import Encoder
from simcse_jax.models.layer import linear
from simcse_jax.models.pooling import FIRST_TOKEN, pool
from simcse_jax.models.products import DType


class SentenceEncoder(nnx.Module):
    """Encoder, pooler and, if the model has one, the head: a dense D→D layer with tanh.

    Some models have convolutions before the pooler (`EncoderConfig.convolutions`), which then reads nothing else, and
    modules at the end (`EncoderConfig.modules`).

    The embeddings, the head and the modules are float32, whatever the encoder's `dtype`. A new head has weights
    N(0, 0.02²) and bias zero (SimCSE, section 6.3 and its code).
    """

    def __init__(self, config: EncoderConfig, *, with_head: bool, rngs: nnx.Rngs, dtype: DType = jnp.float32):
        self.encoder = Encoder(config, rngs=rngs, dtype=dtype)
        self.convolutions = nnx.List(convolutions.layers(config)) if config.convolutions else None
        self.head = linear(config.hidden_size, config.hidden_size, rngs) if with_head else None
        weights = [
            {name: nnx.Param(jnp.zeros(shape)) for name, shape in arithmetic.shapes(module).items()}
            for module in config.modules
        ]
        self.modules = nnx.List([nnx.Dict(module_weights) for module_weights in weights])

    def __call__(
        self,
        input_ids: Int[AnyArray, "B T"],
        attention_mask: Int[AnyArray, "B T"],
        *,
        pooler: str,
        use_head: bool,
        modules: Sequence[Module] = (),
        skipped: int = 0,
        **options: Any,
    ) -> Float[Array, "B _D"]:
        """(B, T) token ids to (B, D) embeddings, not normalized.

        `modules` come last: the model's own or, with another pooler, none of them, and then others without weights. See
        `pool` for `skipped`, and `Encoder.__call__` for the other options.
        """
        only = pooler in FIRST_TOKEN and not skipped
        features = self.token_features(input_ids, attention_mask, first_only=only, **options)
        is_mask_token = self.is_mask_token(input_ids)
        return self.pooled(features, attention_mask, pooler, use_head, modules, skipped, is_mask_token)

    def token_features(
        self,
        input_ids: Int[AnyArray, "B T"],
        attention_mask: Int[AnyArray, "B T"],
        *,
        first_only: bool = False,
        **options: Any,
    ) -> tuple[Float[Array, "B _ _E"], ...]:
        """The pooler's input: all hidden states, or the convolutions of the last ones.

        The arguments are those of `Encoder.__call__`; with convolutions, `first_only` saves nothing.
        """
        config = self.encoder.config
        only = first_only and not config.convolutions
        states = self.encoder(input_ids, attention_mask, first_only=only, **options)
        if self.convolutions is None or config.convolutions is None:  # both or neither
            return states
        dtype = self.encoder.embeddings.dtype
        activation = config.convolutions.activation
        return (convolutions.convolve(self.convolutions, states[-1], attention_mask, activation, dtype),)

    def is_mask_token(self, input_ids: Int[AnyArray, "B T"]) -> Bool[Array, "B T"] | None:
        """Which tokens are mask tokens; None where their id is not known."""
        number = self.encoder.config.mask_token_id
        return None if number is None else jnp.asarray(input_ids) == number

    def pooled(
        self,
        features: tuple[Float[Array, "B _ _E"], ...],
        attention_mask: Int[AnyArray, "B T"],
        pooler: str,
        use_head: bool,
        modules: Sequence[Module] = (),
        skipped: int = 0,
        is_mask_token: Bool[Array, "B T"] | None = None,
        removed: Float[Array, "B _D"] | None = None,
    ) -> Float[Array, "B _D"]:
        """The embeddings of sentences with these `token_features`; the other arguments are those of a call and `pool`.

        `removed` is taken from what the pooler gives, before the head.
        """
        embeddings = pool(features, attention_mask, pooler, skipped, is_mask_token)
        if removed is not None:
            embeddings -= removed
        if use_head:
            assert self.head is not None
            embeddings = jnp.tanh(self.head(embeddings))
        return arithmetic.apply(modules, self.modules, embeddings)


Graph = nnx.GraphDef[SentenceEncoder]


def build(
    config: EncoderConfig, with_head: bool, dtype: DType = jnp.float32
) -> tuple[Graph, dict[str, jax.ShapeDtypeStruct]]:
    """The graph and the abstract float32 parameters of a `SentenceEncoder`, without allocating any.

    `dtype` is the type of the encoder's products (see `models.encoder`).
    """
    graph, shapes = _built(config, with_head, jnp.dtype(dtype))
    return graph, dict(shapes)


@functools.lru_cache(maxsize=16)  # loading, scoring and training ask for the same one; each takes a tenth of a second
def _built(config: EncoderConfig, with_head: bool, dtype: jnp.dtype) -> tuple[Graph, dict[str, jax.ShapeDtypeStruct]]:
    return parameters.abstract(lambda: SentenceEncoder(config, with_head=with_head, rngs=nnx.Rngs(0), dtype=dtype))
