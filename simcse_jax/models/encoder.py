"""BERT, RoBERTa and MPNet in Flax NNX. Shapes: B sentences, T tokens, D hidden size, L layers, H heads.

Parameters are float32. `dtype` is that of the matrix products' factors, gradients among them, and of what passes
between layers; products, biases, sums with the residual, norms, softmax and activations are float32 whatever it is.
"""

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.dropout import attention_dropout, token_dropout
from simcse_jax.models.nonlinearities import gelu, layer_norm, softmax
from simcse_jax.models.padding import Layout, Padded, unpadded
from simcse_jax.models.products import DType, einsum
from simcse_jax.models.relative_positions import BUCKETS, buckets

ACTIVATIONS = {
    "gelu": gelu,
    "gelu_new": functools.partial(jax.nn.gelu, approximate=True),
    "gelu_pytorch_tanh": functools.partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}
Keys = jax.Array | None
Rate = jax.Array | float
SITES_PER_LAYER = 3  # attention probabilities, attention output, feed-forward output
EMBEDDING_SITE = 0


def linear(features_in: int, features_out: int, rngs: nnx.Rngs) -> nnx.Linear:
    """A dense layer with BERT's initialization: weights N(0, 0.02²), bias zero."""
    return nnx.Linear(features_in, features_out, kernel_init=nnx.initializers.normal(0.02), rngs=rngs)


def product(x: jax.Array, kernel: jax.Array, dtype: DType) -> jax.Array:
    """(..., F) times (F, G), factors in `dtype`, as float32."""
    y = einsum("nf,fg->ng", x.reshape(-1, x.shape[-1]), kernel, dtype)
    return y.reshape(*x.shape[:-1], kernel.shape[1])


def dense(x: jax.Array, layer: nnx.Linear, dtype: DType) -> jax.Array:
    """`layer` with the product in `dtype` and the bias in float32: its gradient is a sum over all tokens."""
    return product(x, layer.kernel[...], dtype) + layer.bias[...]


def of_tokens(dropout_keys: Keys, layout: Layout) -> Keys:
    """Each token's key, from (B,) keys of the sentences."""
    return None if dropout_keys is None else layout.of_examples(dropout_keys)


class LayerNorm(nnx.Module):
    """Layer normalization of the hidden states, in float32."""

    def __init__(self, config: EncoderConfig):
        self.scale = nnx.Param(jnp.ones(config.hidden_size))
        self.bias = nnx.Param(jnp.zeros(config.hidden_size))
        self.epsilon = config.layer_norm_eps

    def __call__(self, x: jax.Array) -> jax.Array:
        """(..., D) to the same shape."""
        return layer_norm(x, self.scale[...], self.bias[...], self.epsilon)


class Embeddings(nnx.Module):
    """Word, position and type embeddings, summed and normalized."""

    def __init__(self, config: EncoderConfig, rngs: nnx.Rngs, dtype: DType):
        def table(rows: int) -> nnx.Embed:
            return nnx.Embed(rows, config.hidden_size, embedding_init=nnx.initializers.normal(0.02), rngs=rngs)

        self.word = table(config.vocab_size)
        self.position = table(config.max_positions)
        self.type = table(config.type_vocab_size) if config.type_vocab_size else None
        self.norm = LayerNorm(config)
        self.config = config
        self.dtype = dtype

    def __call__(
        self,
        input_ids: jax.Array,
        attention_mask: jax.Array,
        layout: Layout,
        dropout_keys: Keys,
        dropout_rate: Rate,
    ) -> jax.Array:
        """(B, T) token ids to hidden states in `layout`."""
        if self.config.model_type != "bert":
            positions = jnp.cumsum(attention_mask, axis=1) * attention_mask + self.config.pad_token_id
            positions = layout.to_tokens(positions)
        else:
            positions = layout.positions
        x = self.word(layout.to_tokens(input_ids)) + self.position(positions)
        if self.type is not None:
            x += self.type.embedding[0]
        keys = of_tokens(dropout_keys, layout)
        x = token_dropout(keys, layout.positions, EMBEDDING_SITE, self.norm(x), dropout_rate)
        return x.astype(self.dtype)


class Layer(nnx.Module):
    """One post-norm transformer layer."""

    def __init__(self, config: EncoderConfig, index: int, rngs: nnx.Rngs, dtype: DType):
        size = config.hidden_size
        self.qkv = linear(size, 3 * size, rngs)  # one product for query, key and value
        self.attention_output = linear(size, size, rngs)
        self.attention_norm = LayerNorm(config)
        self.intermediate = linear(size, config.intermediate_size, rngs)
        self.output = linear(config.intermediate_size, size, rngs)
        self.output_norm = LayerNorm(config)
        self.num_heads = config.num_heads
        self.activation = config.hidden_act
        self.first_site = 1 + SITES_PER_LAYER * index
        self.dtype = dtype

    def __call__(
        self,
        x: jax.Array,
        attention_mask: jax.Array,
        layout: Layout,
        dropout_keys: Keys,
        dropout_rate: Rate,
        relative_bias: jax.Array | None = None,
        *,
        first_only: bool = False,
    ) -> tuple[jax.Array, Layout]:
        """Hidden states in `layout` to those behind the layer, and their layout.

        `relative_bias` (H, T, T) is added to attention's scores. With `first_only` there is a result for each
        sentence's first token alone, (B, 1, D): the others are read, and nothing else is computed of them.
        """
        size = x.shape[-1]
        kernel, bias = self.qkv.kernel[...], self.qkv.bias[...].reshape(3, size)
        # The key's bias adds the same to all scores of a query, so its gradient is zero. Left to rounding it would be
        # noise, which Adam blows up to full steps, other ones on every machine.
        bias = jnp.stack([bias[0], jax.lax.stop_gradient(bias[1]), bias[2]]).ravel()

        def project(x: jax.Array, layout: Layout, part: slice) -> list[jax.Array]:  # query, key, value; B, H, T, D / H
            y = (product(x, kernel[:, part], self.dtype) + bias[part]).astype(self.dtype)
            rows = [layout.to_rows(one) for one in jnp.split(y, y.shape[-1] // size, axis=-1)]
            # Heads before tokens: the products below are then of contiguous matrices.
            return [x.reshape(*x.shape[:2], self.num_heads, size // self.num_heads).swapaxes(1, 2) for x in rows]

        if first_only:
            key, value = project(x, layout, slice(size, None))
            x, layout = layout.first(x), Padded(1)
            (query,) = project(x, layout, slice(size))
            relative_bias = None if relative_bias is None else relative_bias[:, :1]
        else:
            query, key, value = project(x, layout, slice(None))
        scores = einsum("bhqd,bhkd->bhqk", query, key, self.dtype)
        scores *= (size // self.num_heads) ** -0.5
        if relative_bias is not None:
            scores += relative_bias
        scores = jnp.where(attention_mask[:, None, None, :] > 0, scores, jnp.finfo(scores.dtype).min)
        probabilities = softmax(scores)
        probabilities = attention_dropout(dropout_keys, self.first_site, probabilities, dropout_rate)
        context = einsum("bhqk,bhkd->bhqd", probabilities, value, self.dtype).astype(self.dtype).swapaxes(1, 2)
        context = layout.to_tokens(context.reshape(*context.shape[:2], size))

        def drop(site: int, value: jax.Array) -> jax.Array:
            keys = of_tokens(dropout_keys, layout)
            return token_dropout(keys, layout.positions, self.first_site + site, value, dropout_rate)

        x = self.attention_norm(x + drop(1, dense(context, self.attention_output, self.dtype)))
        inner = ACTIVATIONS[self.activation](dense(x, self.intermediate, self.dtype))
        x = self.output_norm(x + drop(2, dense(inner, self.output, self.dtype)))
        return x.astype(self.dtype), layout


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
        most_tokens: int | None = None,
        first_only: bool = False,
    ) -> tuple[jax.Array, ...]:
        """Encodes B sentences of T tokens, padded on the right.

        Args:
          input_ids: (B, T) integers.
          attention_mask: (B, T), 1 for a token and 0 for padding.
          dropout_keys: (B,) typed threefry keys, one an example, or None for a deterministic pass.
          dropout_rate: in [0, 1), a number or a traced scalar; unused without keys.
          most_tokens: what B sentences have at most, not counting padding; nothing is computed of padding then,
            which changes no result but by the rounding of sums. Of more tokens than these the results are NaN.
          first_only: compute of the last layer nothing but each sentence's first token.

        Returns:
          L + 1 hidden states of shape (B, T, D) and the encoder's dtype: the embedding layer's, then each
          layer's (with `first_only` the last one's is (B, 1, D)). Under `jax.jit` those that nobody reads cost nothing.
        """
        layout: Layout = Padded(input_ids.shape[1])
        if most_tokens is not None and most_tokens < input_ids.size:
            layout = unpadded(attention_mask, most_tokens)

        def rows(x: jax.Array, layout: Layout) -> jax.Array:
            x = layout.to_rows(x)
            if most_tokens is None:
                return x
            return x + jnp.where(jnp.sum(attention_mask) > most_tokens, jnp.nan, 0.0).astype(x.dtype)

        x = self.embeddings(input_ids, attention_mask, layout, dropout_keys, dropout_rate)
        relative_bias = None
        if self.relative_bias is not None:
            relative_bias = jnp.moveaxis(self.relative_bias[...][buckets(input_ids.shape[1])], 2, 0)
        hidden_states = [rows(x, layout)]
        for number, layer in enumerate(self.layers, 1):
            only = first_only and number == len(self.layers)
            x, layout = layer(x, attention_mask, layout, dropout_keys, dropout_rate, relative_bias, first_only=only)
            hidden_states.append(rows(x, layout))
        return tuple(hidden_states)
