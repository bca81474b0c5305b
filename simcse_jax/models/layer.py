"""One layer of an encoder: attention and a feed-forward network. `EncoderConfig` says which parts it has.

Shapes as in `models.encoder`, and F the feed-forward network's features.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from simcse_jax.models.arrays import CONTEXT, AnyArray
from simcse_jax.models.attention import NO_ORDER, Order, attend
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.dropout import Draws, Mask, drop
from simcse_jax.models.lora import NO_MASKS, Adapters
from simcse_jax.models.lora import Masks as LoraMasks
from simcse_jax.models.model_types import ROTARY
from simcse_jax.models.nonlinearities import ACTIVATION_FUNCTIONS
from simcse_jax.models.norm import Norm
from simcse_jax.models.padding import Layout, Padded
from simcse_jax.models.products import Copied, DType, einsum, rounded, shifted
from simcse_jax.models.rotary import rotate

QUERY, KEY_AND_VALUE, QUERY_KEY_AND_VALUE = slice(0, 1), slice(1, 3), slice(0, 3)  # parts of one product


def linear(features_in: int, features_out: int, rngs: nnx.Rngs, *, bias: bool = True) -> nnx.Linear:
    """A dense layer with BERT's initialization: weights N(0, 0.02²), bias zero."""
    kernel = nnx.initializers.normal(0.02)
    return nnx.Linear(features_in, features_out, use_bias=bias, kernel_init=kernel, rngs=rngs)


def product(
    x: Float[Array, "*tokens F"], kernel: Float[AnyArray, "F G"] | Copied, dtype: DType
) -> Float[Array, "*tokens G"]:
    """The matrix product of factors in `dtype`, as float32."""
    y = einsum("nf,fg->ng", x.reshape(-1, x.shape[-1]), kernel, dtype)
    return y.reshape(*x.shape[:-1], kernel.shape[1])


def dense(x: Float[Array, "*tokens F"], layer: nnx.Linear, dtype: DType) -> Float[Array, "*tokens G"]:
    """`layer` with the product in `dtype`, and a bias in float32, because its gradient is a sum over all tokens."""
    y = product(x, layer.kernel[...], dtype)
    return y if layer.bias is None else shifted(y, layer.bias[...], dtype)


class Masks(NamedTuple):
    """The masks of a layer's three dropouts; None where nothing is dropped."""

    attention: Mask | Draws | None = None  # for the probabilities
    attention_output: Mask | None = None
    output: Mask | None = None
    lora: LoraMasks = NO_MASKS  # of its linear maps

    def first(self, layout: Layout) -> "Masks":
        """The masks of each sentence's first token alone."""

        def first(mask: Mask | None) -> Mask | None:
            return mask and mask._replace(keep=layout.first(mask.keep))

        attention = self.attention
        if isinstance(attention, Mask):
            attention = attention._replace(keep=attention.keep[:, :, :1])
        of_lora = {name: mask._replace(keep=layout.first(mask.keep)) for name, mask in self.lora.items()}
        return Masks(attention, first(self.attention_output), first(self.output), of_lora)


class Layer(nnx.Module):
    """A transformer layer: attention, then a feed-forward network, each added to its input.

    The norm comes after each sum, or (`pre_norm`) before attention and before the feed-forward network; then a first
    layer has none before attention if its input comes from the embeddings' norm. With `result_norm` another one comes
    before each sum.

    With `first_only` only each sentence's first token has a result, (B, 1, D): the other tokens serve as keys and
    values, and nothing else is computed for them.
    """

    def __init__(self, config: EncoderConfig, rngs: nnx.Rngs, dtype: DType, *, group: int = 0):
        is_first = not group
        size, inner, bias = config.hidden_size, config.intermediate_size, config.feed_forward_bias
        self.widths = config.qkv_widths
        self.qkv = linear(size, sum(self.widths), rngs, bias=config.attention_bias)  # query, key and value in a product
        self.attention_output = linear(config.heads_width, size, rngs, bias=config.attention_output_bias)
        self.query_norm, self.key_norm = (
            Norm(config, config.head_size) if config.query_key_norm else None for _ in range(2)
        )
        self.attention_norm = None if config.pre_norm and is_first and config.embedding_norm else Norm(config, size)
        self.attention_result_norm, self.output_result_norm = (
            Norm(config, size) if config.result_norm else None for _ in range(2)
        )
        self.intermediate = linear(size, 2 * inner if config.gated else inner, rngs, bias=bias)
        self.output = linear(inner, size, rngs, bias=bias)
        self.output_norm = Norm(config, size)
        self.lora = Adapters(config, group, rngs) if config.adapted(group) else None
        self.pre_norm, self.gated, self.rotary = config.pre_norm, config.gated, config.positions == ROTARY
        self.head_size = config.head_size
        self.activation, self.kernels = config.hidden_act, config.attention_kernels
        self.dtype = dtype

    def __call__(
        self,
        hidden: Float[Array, "*tokens D"],
        attention_mask: Int[AnyArray, "B T"],
        layout: Layout,
        masks: Masks,
        order: Order = NO_ORDER,
        *,
        first_only: bool = False,
    ) -> Float[Array, "... D"]:
        """The hidden states after the layer."""
        shown = self.before(hidden, self.attention_norm)
        if first_only:
            key, value = self.project(shown, layout, KEY_AND_VALUE, masks.lora)
            masks, of_keys, first = masks.first(layout), order, layout.first(hidden)
            shown = first if shown is hidden else layout.first(shown)
            hidden, layout = first, Padded(1)
            (query,) = self.project(shown, layout, QUERY, masks.lora)
            order = order.first()
        else:
            query, key, value = self.project(shown, layout, QUERY_KEY_AND_VALUE, masks.lora)
            of_keys = order
        query, key = self.of_head(query, self.query_norm), self.of_head(key, self.key_norm)
        query, key = rotate(query, order.rotation), rotate(key, of_keys.rotation)
        if (shared := query.shape[1] // key.shape[1]) > 1:  # Ainslie et al. 2023, arXiv:2305.13245
            key, value = (jnp.repeat(x, shared, axis=1) for x in (key, value))
        attended = attend(query, key, value, attention_mask, order, masks.attention, self.dtype, kernels=self.kernels)
        heads = attended.swapaxes(1, 2)
        context = checkpoint_name(layout.to_tokens(heads.reshape(*heads.shape[:2], -1)), CONTEXT)
        update = dense(context, self.attention_output, self.dtype)
        update = self.adapted(update, context, "attention_output", masks.lora)
        update = update if self.attention_result_norm is None else self.attention_result_norm(update)
        attended = self.after(hidden + drop(update, masks.attention_output), self.attention_norm)
        update = self.feed_forward(self.before(attended, self.output_norm), masks.lora)
        update = update if self.output_result_norm is None else self.output_result_norm(update)
        transformed = self.after(attended + drop(update, masks.output), self.output_norm)
        return transformed.astype(self.dtype)

    def before(self, hidden: Float[Array, "*tokens D"], norm: Norm | None) -> Float[Array, "*tokens D"]:
        """The input of attention or of the feed-forward network."""
        return norm(hidden.astype(jnp.float32)) if self.pre_norm and norm is not None else hidden

    def after(self, added: Float[Array, "*tokens D"], norm: Norm | None) -> Float[Array, "*tokens D"]:
        """The hidden states with its result added."""
        return added if self.pre_norm or norm is None else norm(added, rounded(self.dtype))

    def of_head(self, x: Float[Array, "B H T d"], norm: Norm | None) -> Float[Array, "B H T d"]:
        """Queries or keys, each head's normalized if there is a norm."""
        return x if norm is None else norm(x.astype(jnp.float32)).astype(x.dtype)

    def adapted(
        self, y: Float[Array, "*tokens G"], x: Float[Array, "*tokens F"], part: str, masks: LoraMasks, start: int = 0
    ) -> Float[Array, "*tokens G"]:
        """`y`, a product of x (or its columns from `start` on), with what LoRA adds to it, if the layer has any."""
        return y if self.lora is None else self.lora(y, x, part, masks, self.dtype, start)

    def project(
        self, hidden: Float[Array, "*tokens D"], layout: Layout, parts: slice, masks: LoraMasks
    ) -> list[Float[Array, "B _ _ d"]]:
        """The heads' queries, keys and values, or those of the three that `parts` selects."""
        ends = [*itertools.accumulate(self.widths, initial=0)]
        columns = slice(ends[parts.start], ends[parts.stop])
        bias: jax.Array | None = None
        if self.qkv.bias is not None:
            of_query, of_key, of_value = jnp.split(self.qkv.bias[...], ends[1:-1])
            # The key's bias adds the same to all scores of a query, so its gradient is zero. Left to rounding it would
            # be noise, which Adam blows up to full steps that differ from machine to machine. Rotated, it is not.
            of_key = of_key if self.rotary else jax.lax.stop_gradient(of_key)
            bias = jnp.concatenate([of_query, of_key, of_value])
        projected = product(hidden, self.qkv.kernel[...][:, columns], self.dtype)
        if bias is not None:
            projected = shifted(projected, bias[columns], self.dtype)
        projected = self.adapted(projected, hidden, "qkv", masks, columns.start)
        inner = [end - columns.start for end in ends[parts.start + 1 : parts.stop]]
        rows = [layout.to_rows(part) for part in jnp.split(projected.astype(self.dtype), inner, axis=-1)]
        # Heads before tokens: the products below are then of contiguous matrices.
        return [row.reshape(*row.shape[:2], -1, self.head_size).swapaxes(1, 2) for row in rows]

    def feed_forward(self, hidden: Float[Array, "*tokens D"], masks: LoraMasks) -> Float[Array, "*tokens D"]:
        """Two dense layers with the activation between them; with a gate, of half the features, times the others.

        Shazeer 2020, "GLU variants improve transformer" (arXiv:2002.05202), equation 6: GeGLU, SwiGLU.
        """
        inner, activation = dense(hidden, self.intermediate, self.dtype), ACTIVATION_FUNCTIONS[self.activation]
        inner = self.adapted(inner, hidden, "intermediate", masks)
        if self.gated:
            activated, gate = jnp.split(inner, 2, axis=-1)
            inner = activation(activated) * gate
        else:
            inner = activation(inner)
        return self.adapted(dense(inner, self.output, self.dtype), inner, "output", masks)
