"""BERT and its relatives in Flax NNX; `EncoderConfig` says which parts one has.

Shapes: B sentences, T tokens, D hidden size, L layers, H heads.

Hidden states lie in a layout (`models.padding`): (*tokens, D) is (B, T, D) or, without padding, (N, D). Attention has
Q queries, K keys and d = D / H numbers in a head.

Parameters are float32. `dtype` is the type of the matrix products' factors, gradients included, and of the hidden
states between layers; products, biases, sums with the residual, norms, softmax and activations are always float32.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.changes import UNCHANGED, Change
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.dropout import Mask, attention_masks, drop, token_masks
from simcse_jax.models.model_types import FROM_ZERO, WORD_VECTORS
from simcse_jax.models.nonlinearities import ACTIVATION_FUNCTIONS, layer_norm, softmax
from simcse_jax.models.padding import Layout, Padded, unpadded
from simcse_jax.models.products import DType, einsum
from simcse_jax.models.relative_positions import BUCKETS, buckets
from simcse_jax.models.word_vectors import WordVectors

Keys = Key[Array, " B"] | None
Rate = Float[Array, ""] | float
RelativeBias = Float[Array, "*B H Q K"] | None  # added to the scores of attention
SITES_PER_LAYER = 3  # attention probabilities, attention output, feed-forward output
EMBEDDING_SITE = 0
QUERY, KEY_AND_VALUE, QUERY_KEY_AND_VALUE = slice(0, 1), slice(1, 3), slice(0, 3)  # thirds of one product


def linear(features_in: int, features_out: int, rngs: nnx.Rngs) -> nnx.Linear:
    """A dense layer with BERT's initialization: weights N(0, 0.02²), bias zero."""
    return nnx.Linear(features_in, features_out, kernel_init=nnx.initializers.normal(0.02), rngs=rngs)


def product(x: Float[Array, "*tokens F"], kernel: Float[AnyArray, "F G"], dtype: DType) -> Float[Array, "*tokens G"]:
    """The matrix product of factors in `dtype`, as float32."""
    y = einsum("nf,fg->ng", x.reshape(-1, x.shape[-1]), kernel, dtype)
    return y.reshape(*x.shape[:-1], kernel.shape[1])


def dense(x: Float[Array, "*tokens F"], layer: nnx.Linear, dtype: DType) -> Float[Array, "*tokens G"]:
    """`layer` with the product in `dtype`, and the bias in float32, because its gradient is a sum over all tokens."""
    assert layer.bias is not None  # `linear` makes one
    return product(x, layer.kernel[...], dtype) + layer.bias[...]


class Masks(NamedTuple):
    """The masks of a layer's three dropouts; None where nothing is dropped."""

    attention: Mask | None = None  # for the probabilities
    attention_output: Mask | None = None
    output: Mask | None = None

    def first(self, layout: Layout) -> "Masks":
        """The masks of each sentence's first token alone."""
        attention, *tokens = self
        if attention is None:
            return self
        firsts = [mask and mask._replace(keep=layout.first(mask.keep)) for mask in tokens]
        return Masks(attention._replace(keep=attention.keep[:, :, :1]), *firsts)


class LayerNorm(nnx.Module):
    """Layer normalization of the hidden states, in float32."""

    def __init__(self, config: EncoderConfig, size: int):
        self.scale = nnx.Param(jnp.ones(size))
        self.bias = nnx.Param(jnp.zeros(size))
        self.epsilon = config.layer_norm_eps

    def __call__(self, x: Float[Array, "*tokens D"]) -> Float[Array, "*tokens D"]:
        """Each token's vector with mean 0 and variance 1, then scaled and shifted."""
        return layer_norm(x, self.scale[...], self.bias[...], self.epsilon)


class Embeddings(nnx.Module):
    """Word, position, type and task embeddings, summed and normalized; where they are narrower, then a dense layer.

    A sentence's tokens all have the first type and the first task.
    """

    def __init__(self, config: EncoderConfig, rngs: nnx.Rngs, dtype: DType):
        def table(rows: int) -> nnx.Embed:
            return nnx.Embed(rows, config.table_size, embedding_init=nnx.initializers.normal(0.02), rngs=rngs)

        self.word = table(config.vocab_size)
        self.position = table(config.max_positions)
        self.type = table(config.type_vocab_size) if config.type_vocab_size else None
        self.task = table(config.task_types) if config.task_types else None
        self.norm = LayerNorm(config, config.table_size)
        self.projection = linear(config.table_size, config.hidden_size, rngs) if config.embedding_size else None
        self.config = config
        self.dtype = dtype

    def __call__(
        self,
        input_ids: Int[AnyArray, "B T"],
        attention_mask: Int[AnyArray, "B T"],
        layout: Layout,
        mask: Mask | None,
        change: Change = UNCHANGED,
    ) -> Float[Array, "*tokens D"]:
        """The hidden states before the first layer, in `layout`, after the change."""
        if self.config.positions == FROM_ZERO:
            positions = layout.positions if change.positions is None else layout.to_tokens(change.positions)
        elif change.positions is not None:
            positions = layout.to_tokens((change.positions + 1) * attention_mask + self.config.pad_token_id)
        else:  # tokens count from the index after padding's
            rows = jnp.cumsum(attention_mask, axis=1) * attention_mask + self.config.pad_token_id
            positions = layout.to_tokens(rows)
        embedded = self.word(layout.to_tokens(jnp.asarray(input_ids))) + self.position(jnp.asarray(positions))
        if self.type is not None:
            embedded += self.type.embedding[0]
        if self.task is not None:
            embedded += self.task.embedding[0]
        embedded = drop(self.norm(embedded), mask)
        if self.projection is not None:
            embedded = dense(embedded, self.projection, self.dtype)
        if change.kept is not None:
            embedded = jnp.where(layout.of_examples(jnp.asarray(change.kept)), embedded, 0.0)
        return embedded.astype(self.dtype)


class Layer(nnx.Module):
    """One post-norm transformer layer: attention, then a feed-forward network, each added to its input and normalized.

    With `first_only` only each sentence's first token has a result, (B, 1, D): the other tokens serve as keys and
    values, and nothing else is computed for them.
    """

    def __init__(self, config: EncoderConfig, rngs: nnx.Rngs, dtype: DType):
        size = config.hidden_size
        self.qkv = linear(size, 3 * size, rngs)  # one product for query, key and value
        self.attention_output = linear(size, size, rngs)
        self.attention_norm = LayerNorm(config, size)
        self.intermediate = linear(size, config.intermediate_size, rngs)
        self.output = linear(config.intermediate_size, size, rngs)
        self.output_norm = LayerNorm(config, size)
        self.num_heads = config.num_heads
        self.head_size = size // config.num_heads
        self.activation = config.hidden_act
        self.dtype = dtype

    def __call__(
        self,
        hidden: Float[Array, "*tokens D"],
        attention_mask: Int[AnyArray, "B T"],
        layout: Layout,
        masks: Masks,
        relative_bias: RelativeBias = None,
        *,
        first_only: bool = False,
    ) -> tuple[Float[Array, "... D"], Layout]:
        """The hidden states after the layer, and their layout."""
        if first_only:
            key, value = self.project(hidden, layout, KEY_AND_VALUE)
            masks = masks.first(layout)
            hidden, layout = layout.first(hidden), Padded(1)
            (query,) = self.project(hidden, layout, QUERY)
            relative_bias = None if relative_bias is None else relative_bias[..., :1, :]
        else:
            query, key, value = self.project(hidden, layout, QUERY_KEY_AND_VALUE)
        scores = self.scores(query, key, attention_mask, relative_bias)
        probabilities = drop(softmax(scores), masks.attention)
        context = self.context(probabilities, value, layout)
        update = dense(context, self.attention_output, self.dtype)
        attended = self.attention_norm(hidden + drop(update, masks.attention_output))
        update = self.feed_forward(attended)
        transformed = self.output_norm(attended + drop(update, masks.output))
        return transformed.astype(self.dtype), layout

    def project(
        self, hidden: Float[Array, "*tokens D"], layout: Layout, thirds: slice
    ) -> list[Float[Array, "B H _ d"]]:
        """The heads' queries, keys and values, or those of the three that `thirds` selects."""
        size = hidden.shape[-1]
        columns = slice(thirds.start * size, thirds.stop * size)
        assert self.qkv.bias is not None
        bias = self.qkv.bias[...].reshape(3, size)
        # The key's bias adds the same to all scores of a query, so its gradient is zero. Left to rounding it would be
        # noise, which Adam blows up to full steps that differ from machine to machine.
        bias = jnp.stack([bias[0], jax.lax.stop_gradient(bias[1]), bias[2]]).ravel()
        projected = product(hidden, self.qkv.kernel[...][:, columns], self.dtype) + bias[columns]
        parts = jnp.split(projected.astype(self.dtype), thirds.stop - thirds.start, axis=-1)
        rows = [layout.to_rows(part) for part in parts]
        # Heads before tokens: the products below are then of contiguous matrices.
        return [row.reshape(*row.shape[:2], self.num_heads, self.head_size).swapaxes(1, 2) for row in rows]

    def scores(
        self,
        query: Float[Array, "B H Q d"],
        key: Float[Array, "B H K d"],
        attention_mask: Int[AnyArray, "B K"],
        relative_bias: RelativeBias,
    ) -> Float[Array, "B H Q K"]:
        """The input of attention's softmax: scaled products, and the least number where the key is padding."""
        scores = einsum("bhqd,bhkd->bhqk", query, key, self.dtype)
        scores *= self.head_size**-0.5
        if relative_bias is not None:
            scores += relative_bias
        return jnp.where(attention_mask[:, None, None, :] > 0, scores, jnp.finfo(scores.dtype).min)

    def context(
        self, probabilities: Float[Array, "B H Q K"], value: Float[Array, "B H K d"], layout: Layout
    ) -> Float[Array, "*tokens D"]:
        """Sums of the values weighted by attention, the heads concatenated, in `layout`."""
        context = einsum("bhqk,bhkd->bhqd", probabilities, value, self.dtype).astype(self.dtype).swapaxes(1, 2)
        return layout.to_tokens(context.reshape(*context.shape[:2], self.num_heads * self.head_size))

    def feed_forward(self, hidden: Float[Array, "*tokens D"]) -> Float[Array, "*tokens D"]:
        """Two dense layers with the activation between them."""
        inner = ACTIVATION_FUNCTIONS[self.activation](dense(hidden, self.intermediate, self.dtype))
        return dense(inner, self.output, self.dtype)


class Encoder(nnx.Module):
    """BERT or one of its relatives without any head; or word vectors, with no layers at all.

    `layers` has the parameters: one for each layer, or one for each group of layers that share theirs.
    """

    def __init__(self, config: EncoderConfig, *, rngs: nnx.Rngs, dtype: DType = jnp.float32):
        is_words = config.model_type == WORD_VECTORS
        self.embeddings = WordVectors(config, rngs, dtype) if is_words else Embeddings(config, rngs, dtype)
        self.layers = nnx.List([Layer(config, rngs, dtype) for _ in sorted(set(config.groups))])
        # Shared by all layers: a number for each bucket of distances and each head.
        shape = (BUCKETS, config.num_heads)
        relative = nnx.initializers.normal(0.02)
        self.relative_bias = nnx.Param(relative(rngs.params(), shape)) if config.relative_bias else None
        self.config = config

    def __call__(
        self,
        input_ids: Int[AnyArray, "B T"],
        attention_mask: Int[AnyArray, "B T"],
        *,
        dropout_keys: Keys = None,
        dropout_rate: Rate = 0.1,
        most_tokens: int | None = None,
        first_only: bool = False,
        change: Change = UNCHANGED,
        first: Float[AnyArray, "B D"] | None = None,
    ) -> tuple[Float[Array, "B _ D"], ...]:
        """Encodes B sentences of T tokens, padded on the right.

        Args:
          input_ids: (B, T) integers.
          attention_mask: (B, T), 1 for a token and 0 for padding.
          dropout_keys: (B,) typed threefry keys, one for each example, or None for a deterministic pass.
          dropout_rate: in [0, 1), a number or a traced scalar; unused without keys.
          most_tokens: the most tokens that the B sentences have together, without padding. Nothing is then computed for
            padding, which changes results only by the rounding of sums. With more tokens, all results are NaN.
          first_only: compute the last layer for each sentence's first token alone.
          change: of the sentences, in the embedding layer.
          first: (B, D) vectors that replace each sentence's first token after the embedding layer's norm and dropout.

        Returns:
          L + 1 hidden states of shape (B, T, D) and the encoder's dtype: the embedding layer's, then each
          layer's (with `first_only` the last one's is (B, 1, D)). Under `jax.jit` unused ones cost nothing.
        """
        layout: Layout = Padded(input_ids.shape[1])
        if most_tokens is not None and most_tokens < input_ids.size:
            layout = unpadded(attention_mask, most_tokens)

        def rows(hidden: Float[Array, "... D"], layout: Layout) -> Float[Array, "B _ D"]:
            hidden = layout.to_rows(hidden)
            if most_tokens is None:
                return hidden
            too_many = jnp.sum(attention_mask) > most_tokens
            return hidden + jnp.where(too_many, jnp.nan, 0.0).astype(hidden.dtype)

        embedding_mask, masks = self.draw_masks(layout, input_ids.shape[1], dropout_keys, dropout_rate)
        hidden = self.embeddings(input_ids, attention_mask, layout, embedding_mask, change)
        if first is not None:
            hidden = layout.with_first(hidden, jnp.asarray(first).astype(hidden.dtype))
        relative_bias = self.relative_bias_of(input_ids.shape[1], change.positions)
        hidden_states = [rows(hidden, layout)]
        for number, (group, layer_masks) in enumerate(zip(self.config.groups, masks, strict=True), 1):
            only = first_only and number == self.config.num_layers
            layer = self.layers[group]
            hidden, layout = layer(hidden, attention_mask, layout, layer_masks, relative_bias, first_only=only)
            hidden_states.append(rows(hidden, layout))
        return tuple(hidden_states)

    def relative_bias_of(self, length: int, positions: Int[AnyArray, "B T"] | None = None) -> RelativeBias:
        """(H, T, T) numbers that MPNet adds to the scores of T tokens; None for other models.

        With tokens at other `positions` (B, H, T, T): distances follow them, since MPNet knows the order of its tokens
        by both. A permutation is then the same as the tokens in that order.
        """
        if self.relative_bias is None:
            return None
        bias = jnp.moveaxis(self.relative_bias[...][buckets(length)], 2, 0)
        return bias if positions is None else jnp.moveaxis(bias[:, positions[:, :, None], positions[:, None]], 0, 1)

    def draw_masks(
        self, layout: Layout, length: int, dropout_keys: Keys, dropout_rate: Rate
    ) -> tuple[Mask | None, Sequence[Masks]]:
        """The masks of the embeddings and of each layer, for sentences of T = `length` tokens."""
        count = self.config.num_layers
        if dropout_keys is None:
            return None, [Masks()] * count
        sites = [1 + SITES_PER_LAYER * index for index in range(count)]  # attention's; the layer's other two follow
        # Where an encoder drops nothing of attention's or the feed-forward part's output, this site is not drawn.
        dropped = (self.config.drops_attention_output, self.config.drops_feed_forward_output)
        numbers = [number for number, drops in enumerate(dropped, 1) if drops]
        of_layers = [site + number for site in sites for number in numbers]
        attention = attention_masks(dropout_keys, sites, (self.config.num_heads, length, length), dropout_rate)
        keys = layout.of_examples(dropout_keys)
        size, narrow = self.config.hidden_size, self.config.table_size
        if narrow == size:
            embedding, *others = token_masks(keys, layout.positions, [EMBEDDING_SITE, *of_layers], size, dropout_rate)
        else:
            (embedding,) = token_masks(keys, layout.positions, [EMBEDDING_SITE], narrow, dropout_rate)
            others = token_masks(keys, layout.positions, of_layers, size, dropout_rate)
        drawn = iter(others)
        outputs = [[next(drawn) if drops else None for drops in dropped] for _ in sites]
        return embedding, [Masks(mask, *each) for mask, each in zip(attention, outputs, strict=True)]
