"""BERT, RoBERTa and MPNet in Flax NNX. Shapes: B sentences, T tokens, D hidden size, L layers, H heads.

Parameters are float32. `dtype` is that of the matrix products' inputs and of what passes between layers; biases, sums
with the residual, norms, softmax and activations are float32 whatever it is, and so are their gradients.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.dropout import dropout
from simcse_jax.models.relative_positions import BUCKETS, buckets


def gelu(x: jax.Array) -> jax.Array:
    """x Φ(x), as 0.5 x (1 + erf(x/√2)): `jax.nn.gelu` takes the error function's complement, which costs more."""
    return 0.5 * x * (1.0 + jax.lax.erf(x * np.float32(0.5**0.5)))


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_new": functools.partial(jax.nn.gelu, approximate=True),
    "gelu_pytorch_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}
Keys = jax.Array | None
Rate = jax.Array | float
DType = jnp.dtype | type
SITES_PER_LAYER = 3  # attention probabilities, attention output, feed-forward output
EMBEDDING_SITE = 0


def linear(features_in: int, features_out: int, rngs: nnx.Rngs) -> nnx.Linear:
    """A dense layer with BERT's initialization: weights N(0, 0.02²), bias zero."""
    return nnx.Linear(features_in, features_out, kernel_init=nnx.initializers.normal(0.02), rngs=rngs)


def product(x: jax.Array, layer: nnx.Linear, dtype: DType) -> jax.Array:
    """`layer` without its bias: the product in `dtype`, as float32."""
    return (x.astype(dtype) @ layer.kernel[...].astype(dtype)).astype(jnp.float32)


def dense(x: jax.Array, layer: nnx.Linear, dtype: DType) -> jax.Array:
    """`layer` with the product in `dtype` and the bias in float32: its gradient is a sum over all tokens."""
    return product(x, layer, dtype) + layer.bias[...]


def layer_norm(config: EncoderConfig, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """Layer normalization with the exact variance: Flax's default, E[x²] - E[x]², cancels."""
    return nnx.LayerNorm(config.hidden_size, epsilon=config.layer_norm_eps, use_fast_variance=False, rngs=rngs)


class Embeddings(nnx.Module):
    """Word, position and type embeddings, summed and normalized."""

    def __init__(self, config: EncoderConfig, rngs: nnx.Rngs, dtype: DType):
        def table(rows: int) -> nnx.Embed:
            return nnx.Embed(rows, config.hidden_size, embedding_init=nnx.initializers.normal(0.02), rngs=rngs)

        self.word = table(config.vocab_size)
        self.position = table(config.max_positions)
        self.type = table(config.type_vocab_size) if config.type_vocab_size else None
        self.norm = layer_norm(config, rngs)
        self.config = config
        self.dtype = dtype

    def __call__(
        self, input_ids: jax.Array, attention_mask: jax.Array, dropout_keys: Keys, dropout_rate: Rate
    ) -> jax.Array:
        """(B, T) token ids to (B, T, D)."""
        if self.config.model_type != "bert":
            positions = jnp.cumsum(attention_mask, axis=1) * attention_mask + self.config.pad_token_id
        else:
            positions = jnp.arange(input_ids.shape[1])[None]
        x = self.word(input_ids) + self.position(positions)
        if self.type is not None:
            x += self.type.embedding[0]
        return dropout(dropout_keys, EMBEDDING_SITE, self.norm(x), dropout_rate, lane_axis=2).astype(self.dtype)


class Layer(nnx.Module):
    """One post-norm transformer layer."""

    def __init__(self, config: EncoderConfig, index: int, rngs: nnx.Rngs, dtype: DType):
        size = config.hidden_size
        self.qkv = linear(size, 3 * size, rngs)  # one product for query, key and value
        self.attention_output = linear(size, size, rngs)
        self.attention_norm = layer_norm(config, rngs)
        self.intermediate = linear(size, config.intermediate_size, rngs)
        self.output = linear(config.intermediate_size, size, rngs)
        self.output_norm = layer_norm(config, rngs)
        self.num_heads = config.num_heads
        self.activation = config.hidden_act
        self.first_site = 1 + SITES_PER_LAYER * index
        self.dtype = dtype

    def __call__(
        self,
        x: jax.Array,
        attention_mask: jax.Array,
        dropout_keys: Keys,
        dropout_rate: Rate,
        relative_bias: jax.Array | None = None,
    ) -> jax.Array:
        """(B, T, D) to (B, T, D); `relative_bias` (H, T, T) is added to attention's scores."""

        def drop(site: int, value: jax.Array, lane_axis: int) -> jax.Array:
            return dropout(dropout_keys, self.first_site + site, value, dropout_rate, lane_axis=lane_axis)

        rows, length, size = x.shape
        head_size = size // self.num_heads
        bias = self.qkv.bias[...].reshape(3, size)
        # The key's bias adds the same to all scores of a query, so its gradient is zero. Left to rounding it would be
        # noise, which Adam blows up to full steps, other ones on every machine.
        bias = jnp.stack([bias[0], jax.lax.stop_gradient(bias[1]), bias[2]]).ravel()
        qkv = (product(x, self.qkv, self.dtype) + bias).astype(self.dtype)
        # Heads before tokens: the products below are then of contiguous matrices.
        query, key, value = qkv.reshape(rows, length, 3, self.num_heads, head_size).transpose(2, 0, 3, 1, 4)
        scores = jnp.einsum("bhqd,bhkd->bhqk", query, key, preferred_element_type=jnp.float32) * head_size**-0.5
        if relative_bias is not None:
            scores += relative_bias
        scores = jnp.where(attention_mask[:, None, None, :] > 0, scores, jnp.finfo(scores.dtype).min)
        probabilities = drop(0, jax.nn.softmax(scores, axis=-1), lane_axis=1)
        context = jnp.einsum("bhqk,bhkd->bhqd", probabilities.astype(self.dtype), value)
        context = context.swapaxes(1, 2).reshape(rows, length, size)
        x = self.attention_norm(x + drop(1, dense(context, self.attention_output, self.dtype), lane_axis=2))
        inner = ACTIVATIONS[self.activation](dense(x, self.intermediate, self.dtype))
        return self.output_norm(x + drop(2, dense(inner, self.output, self.dtype), lane_axis=2)).astype(self.dtype)


class Encoder(nnx.Module):
    """BERT, RoBERTa or MPNet without any head."""

    def __init__(self, config: EncoderConfig, *, rngs: nnx.Rngs, dtype: DType = jnp.float32):
        self.embeddings = Embeddings(config, rngs, dtype)
        self.layers = nnx.List([Layer(config, index, rngs, dtype) for index in range(config.num_layers)])
        # MPNet's alone, shared by all layers: a number for each bucket of distances and each head.
        shape = (BUCKETS, config.num_heads)
        relative = nnx.initializers.normal(0.02)
        self.relative_bias = nnx.Param(relative(rngs.params(), shape)) if config.model_type == "mpnet" else None
        self.config = config

    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array,
        *,
        dropout_keys: Keys = None,
        dropout_rate: Rate = 0.1,
    ) -> tuple[jax.Array, ...]:
        """Encodes B sentences of T tokens, padded on the right.

        Args:
          input_ids: (B, T) integers.
          attention_mask: (B, T), 1 for a token and 0 for padding.
          dropout_keys: (B,) typed threefry keys, one an example, or None for a deterministic pass.
          dropout_rate: in [0, 1), a number or a traced scalar; unused without keys.

        Returns:
          L + 1 hidden states of shape (B, T, D) and the encoder's dtype: the embedding layer's, then each
          layer's. Under `jax.jit` those that nobody reads cost nothing.
        """
        x = self.embeddings(input_ids, attention_mask, dropout_keys, dropout_rate)
        relative_bias = None
        if self.relative_bias is not None:
            relative_bias = jnp.moveaxis(self.relative_bias[...][buckets(input_ids.shape[1])], 2, 0)
        hidden_states = [x]
        for layer in self.layers:
            x = layer(x, attention_mask, dropout_keys, dropout_rate, relative_bias)
            hidden_states.append(x)
        return tuple(hidden_states)
