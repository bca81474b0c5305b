"""BERT and its relatives in Flax NNX; `EncoderConfig` says which parts each is made of.

Shapes: B sentences, T tokens, D hidden size, L layers, H heads. Hidden states lie in a layout (`models.padding`):
(*tokens, D) is (B, T, D) or, without padding, (N, D). Attention has Q queries, K keys and d = D / H numbers in a head.

Parameters are float32. `dtype` is the type of the matrix products' factors, gradients included, and of the hidden
states between layers; products, biases, sums with the residual, norms, softmax and activations are always float32.
With `products.rounding` TPUs and GPUs write the results of products as `dtype`, and GPUs what norms read and give and
attention's probabilities; what follows them still computes in float32.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key

from simcse_jax.models import by_layer, lora
from simcse_jax.models.arrays import CONTEXT, AnyArray
from simcse_jax.models.attention import EVERYTHING, Near, Order, RelativeBias, is_long
from simcse_jax.models.changes import UNCHANGED, Change
from simcse_jax.models.config import EncoderConfig, Site
from simcse_jax.models.dropout import Draws, Mask, Place, Rate, attention_masks, drop, token_masks
from simcse_jax.models.layer import Layer, Masks, dense, linear
from simcse_jax.models.model_types import AFTER_PADDING, FROM_ZERO, ROTARY, WORD_VECTORS
from simcse_jax.models.norm import Norm
from simcse_jax.models.padding import Layout, Padded, unpadded
from simcse_jax.models.platforms import for_platform
from simcse_jax.models.products import DType, rounded
from simcse_jax.models.relative_positions import BUCKETS, buckets
from simcse_jax.models.rotary import rotation

Keys = Key[Array, " B"] | None
SITES_PER_LAYER = 3  # attention probabilities, attention output, feed-forward output
EMBEDDING_SITE = 0


class Embeddings(nnx.Module):
    """Word, position, type and task embeddings, summed and normalized; where they are narrower, then a dense layer.

    Rotary positions have no table: layers apply them. Word vectors are as they are in their table, a decoder's words
    are not normalized, but may be scaled. All tokens have the first task, and the first type unless `token_types` are
    given.
    """

    def __init__(self, config: EncoderConfig, rngs: nnx.Rngs, dtype: DType):
        def table(rows: int) -> nnx.Embed:
            return nnx.Embed(rows, config.table_size, embedding_init=nnx.initializers.normal(0.02), rngs=rngs)

        is_words = config.model_type == WORD_VECTORS
        self.word = table(config.vocab_size)
        self.position = None if is_words or config.positions == ROTARY else table(config.max_positions)
        self.type = table(config.type_vocab_size) if config.type_vocab_size else None
        self.task = table(config.task_types) if config.task_types else None
        self.norm = Norm(config, config.table_size) if config.embedding_norm and not is_words else None
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
        token_types: Int[AnyArray, "B T"] | None = None,
    ) -> Float[Array, "*tokens D"]:
        """The hidden states before the first layer, in `layout`, after the change."""
        rows = None if self.position is None else self.rows_of_positions(input_ids, attention_mask, layout, change)
        embedded = self.words(layout.to_tokens(jnp.asarray(input_ids)))
        if self.config.embedding_scale != 1.0:
            embedded *= self.config.embedding_scale
        if self.position is not None and rows is not None:
            of_positions = self.position(rows)
            if change.positions is not None and self.config.positions == AFTER_PADDING:  # padding's row never learns
                is_padding = rows[..., None] == self.config.pad_token_id
                of_positions = jnp.where(is_padding, jax.lax.stop_gradient(of_positions), of_positions)
            embedded += of_positions
        if self.type is not None:
            types = None if token_types is None else layout.to_tokens(jnp.asarray(token_types))
            embedded += self.type.embedding[0] if types is None else self.type(types)
        if self.task is not None:
            embedded += self.task.embedding[0]
        if self.norm is not None:
            embedded = self.norm(embedded, rounded(self.dtype))
        embedded = drop(embedded, mask)
        if self.projection is not None:
            embedded = dense(embedded, self.projection, self.dtype)
        if change.kept is not None:
            embedded = jnp.where(layout.of_examples(jnp.asarray(change.kept)), embedded, 0.0)
        return embedded.astype(self.dtype)

    def words(self, ids: Int[Array, "*tokens"]) -> Float[Array, "*tokens W"]:
        """The words' rows of the table."""
        table = self.word.embedding.get_value()
        return table.placement.rows(table.part, ids) if isinstance(table, by_layer.Part) else self.word(ids)

    def rows_of_positions(
        self, input_ids: Int[AnyArray, "B T"], attention_mask: Int[AnyArray, "B T"], layout: Layout, change: Change
    ) -> Int[Array, "*tokens"]:
        """Each token's row of the table of positions."""
        if self.config.positions == FROM_ZERO:
            return layout.positions if change.positions is None else layout.to_tokens(jnp.asarray(change.positions))
        if change.positions is not None:
            return layout.to_tokens(jnp.asarray((change.positions + 1) * attention_mask + self.config.pad_token_id))
        # Tokens count from the index after padding's; a padding token that a text has does not count.
        counted = attention_mask * (jnp.asarray(input_ids) != self.config.pad_token_id)
        return layout.to_tokens(jnp.cumsum(counted, axis=1) * counted + self.config.pad_token_id)


class Encoder(nnx.Module):
    """BERT or one of its relatives without any head; or word vectors, with no layers at all.

    `layers` has the parameters: one for each layer, or one for each group of layers that share theirs. If they are in
    parts, one layer at a time is whole (`models.by_layer`).
    """

    def __init__(self, config: EncoderConfig, *, rngs: nnx.Rngs, dtype: DType = jnp.float32):
        self.embeddings = Embeddings(config, rngs, dtype)
        self.layers = nnx.List([Layer(config, rngs, dtype, group=group) for group in sorted(set(config.groups))])
        self.final_norm = Norm(config, config.hidden_size) if config.pre_norm else None
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
        attention_dropout_rate: Rate | None = None,
        lora_dropout_rate: Rate | None = None,
        most_tokens: int | None = None,
        first_only: bool = False,
        change: Change = UNCHANGED,
        first: Float[AnyArray, "B D"] | None = None,
        token_types: Int[AnyArray, "B T"] | None = None,
    ) -> tuple[Float[Array, "B _ D"], ...]:
        """Encodes B sentences of T tokens, padded on the right.

        Args:
          dropout_keys: (B,) typed threefry keys, one for each example, or None for a deterministic pass.
          dropout_rate: in [0, 1), a number or a traced scalar; unused without keys.
          attention_dropout_rate: another one for attention's probabilities; None: the same. With the number 0.0, not
            a traced one, no mask is drawn for them.
          lora_dropout_rate: that of LoRA's inputs; None: nothing of them is dropped.
          most_tokens: the most tokens that the B sentences have together, without padding. Nothing is then computed for
            padding, which changes results only by the rounding of sums. With more tokens, all results are NaN.
          first_only: compute the last layer for each sentence's first token alone.
          first: (B, D) vectors that replace each sentence's first token after the embedding layer's norm and dropout.
          token_types: (B, T) rows of the table of types, for pairs of texts; None: all 0.

        Returns:
          L + 1 hidden states of shape (B, T, D) and the encoder's dtype: the embedding layer's, then each
          layer's (with `first_only` the last one's is (B, 1, D)). An encoder's final norm, if it has one, is a part of
          the last one. Under `jax.jit` unused ones cost nothing.
        """
        length = input_ids.shape[1]
        layout: Layout = Padded(length)
        if most_tokens is not None and most_tokens < input_ids.size:
            layout = unpadded(attention_mask, most_tokens)

        rates = dropout_rate, attention_dropout_rate, lora_dropout_rate
        drawn = functools.partial(self.draw_masks, layout, length, dropout_keys, *rates)
        in_parts = by_layer.in_parts(self.layers)
        embedding_mask, masks = drawn(layers=() if in_parts else None)
        hidden = self.embeddings(input_ids, attention_mask, layout, embedding_mask, change, token_types)
        if first is not None:
            hidden = layout.with_first(hidden, jnp.asarray(first).astype(hidden.dtype))
        orders = self.orders(length, change.positions)
        numbers = range(self.config.num_layers)
        layers = [self.layers[group] for group in self.config.groups]
        kinds = [(number in self.config.local_layers, first_only and number == numbers[-1]) for number in numbers]

        def compute(like: int, number: Place, layer: Layer, hidden: Float[Array, "..."]) -> Float[Array, "..."]:
            """Layer `number`, whose kind is that of layer `like`."""
            is_local, only = kinds[like]
            (layer_masks,) = drawn(layers=[(number, self.config.groups[like])])[1] if in_parts else [masks[like]]
            return layer(hidden, attention_mask, layout, layer_masks, orders[is_local], first_only=only)

        states = [hidden]
        for run in by_layer.alike(layers, kinds) if in_parts else [range(number, number + 1) for number in numbers]:
            computed = functools.partial(compute, run[0])
            if len(run) > 1:
                run_layers = layers[run.start : run.stop]
                states += [*by_layer.in_a_loop(run_layers, run[0], computed, states[-1], kept(length))]
                continue

            def through(hidden: Float[Array, "..."], number: int = run[0]) -> Float[Array, "..."]:
                return computed(number, by_layer.gathered(layers[number]) if in_parts else layers[number], hidden)

            is_light = in_parts or is_long(length)
            states.append(again(through, states[-1], attention_mask, kept(length)) if is_light else through(states[-1]))
        if self.final_norm is not None:
            states[-1] = self.final_norm(states[-1].astype(jnp.float32)).astype(hidden.dtype)
        layouts = [layout, *(Padded(1) if only else layout for _, only in kinds)]
        return tuple(rows_of(*of_layer, attention_mask, most_tokens) for of_layer in zip(states, layouts, strict=True))

    def orders(self, length: int, positions: Int[AnyArray, "B T"] | None = None) -> tuple[Order, Order]:
        """The order of T tokens for global and for local layers, by their positions if these are not 0, 1, 2 …

        A local layer's queries see the keys that are at most `window` positions away; a decoder's, none after them.
        """
        config, in_order = self.config, positions is None
        bias = self.relative_bias_of(length, positions)
        if config.positions != ROTARY:
            return Order(bias), Order(bias)
        where = jnp.arange(length)[None] if positions is None else jnp.asarray(positions)
        before = Near(where, where, EVERYTHING, in_order, causal=True) if config.causal else None
        turned = rotation(where, config.head_size, config.rotary_base, config.rotary_scaling)
        everywhere = Order(bias, turned, before)
        if not config.local_layers:
            return everywhere, everywhere
        near = Near(where, where, config.window, in_order, config.causal)
        if config.local_rotary_base:
            turned = rotation(where, config.head_size, config.local_rotary_base)
        return everywhere, Order(bias, turned, near)

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
        self,
        layout: Layout,
        length: int,
        dropout_keys: Keys,
        dropout_rate: Rate,
        attention_rate: Rate | None = None,
        lora_rate: Rate | None = None,
        layers: Sequence[tuple[Place, int]] | None = None,
    ) -> tuple[Mask | None, Sequence[Masks]]:
        """The masks of the embeddings and of each layer, for sentences of T = `length` tokens.

        With `layers` only of these, by their numbers and their groups.
        """
        layers = [*enumerate(self.config.groups)] if layers is None else layers
        attention_rate = dropout_rate if attention_rate is None else attention_rate
        if dropout_keys is None:
            return None, [Masks()] * len(layers)
        sites = [1 + SITES_PER_LAYER * index for index, _ in layers]  # attention's; the layer's other two follow
        # Where an encoder drops nothing of attention's or the feed-forward part's output, this site is not drawn.
        dropped = (self.config.drops_attention_output, self.config.drops_feed_forward_output)
        of_layers = [site + number for site in sites for number, drops in enumerate(dropped, 1) if drops]
        attention: Sequence[Mask | Draws | None]
        if not sites or (isinstance(attention_rate, float) and not attention_rate):
            attention = [None] * len(sites)
        elif is_long(length):
            attention = [Draws(dropout_keys, site, attention_rate) for site in sites]
        else:
            attention = attention_masks(dropout_keys, sites, (self.config.num_heads, length, length), attention_rate)
        keys = layout.of_examples(dropout_keys)
        size, narrow = self.config.hidden_size, self.config.table_size
        if narrow == size:
            embedding, *rest = token_masks(keys, layout.positions, [EMBEDDING_SITE, *of_layers], size, dropout_rate)
        else:
            (embedding,) = token_masks(keys, layout.positions, [EMBEDDING_SITE], narrow, dropout_rate)
            rest = token_masks(keys, layout.positions, of_layers, size, dropout_rate)
        drawn = iter(rest)
        outputs = [[next(drawn) if drops else None for drops in dropped] for _ in sites]
        of_lora = [{} for _ in sites] if lora_rate is None else self.lora_masks(layout, keys, lora_rate, layers)
        return embedding, [
            Masks(*of_layer) for of_layer in zip(attention, *zip(*outputs, strict=True), of_lora, strict=True)
        ]

    def lora_masks(
        self, layout: Layout, keys: Key[Array, "..."], rate: Rate, layers: Sequence[tuple[Place, int]]
    ) -> list[dict[str, Mask]]:
        """For each of these layers the masks of its linear maps with LoRA; `keys` are the tokens'."""
        masks: list[dict[str, Mask]] = [{} for _ in layers]
        by_size: dict[int, list[tuple[int, Site]]] = {}
        for layer, (_, group) in enumerate(layers):
            for site in self.config.adapted(group):
                by_size.setdefault(lora.features(self.config, site)[0], []).append((layer, site))
        for size, of_size in sorted(by_size.items()):
            sites = [lora.mask_site(layers[layer][0], site) for layer, site in of_size]
            drawn = token_masks(keys, layout.positions, sites, size, rate)
            for (layer, site), mask in zip(of_size, drawn, strict=True):
                masks[layer][site.name] = mask
        return masks


def rows_of(
    hidden: Float[Array, "... D"], layout: Layout, attention_mask: Int[AnyArray, "B T"], most_tokens: int | None
) -> Float[Array, "B _ D"]:
    """The hidden states of each sentence; all are NaN if there are more tokens than the layout has places for."""
    hidden = layout.to_rows(hidden)
    if most_tokens is None:
        return hidden
    too_many = jnp.sum(attention_mask) > most_tokens
    return hidden + jnp.where(too_many, jnp.nan, 0.0).astype(hidden.dtype)


def kept(length: int) -> tuple[str, ...]:
    """The names of results that are kept in a layer that is computed again: of a long text, attention's."""
    return (CONTEXT,) if is_long(length) else ()


def again(
    through: Callable[[Float[Array, "..."]], Float[Array, "..."]],
    hidden: Float[Array, "..."],
    attention_mask: Int[AnyArray, "B T"],
    kept: Sequence[str],
) -> Float[Array, "..."]:
    """A layer whose input and the results of these names are kept; the backward pass computes the rest again.

    XLA for CPUs sees through `jax.checkpoint`, joins both computations, and so keeps everything. It does not see into a
    branch, which is taken always here: a mask has no negative numbers, but that it cannot know.
    """
    light = jax.checkpoint(through, policy=jax.checkpoint_policies.save_only_these_names(*kept))

    def in_a_branch(hidden: Float[Array, "..."], some: Bool[Array, ""]) -> Float[Array, "..."]:
        result = jax.eval_shape(through, hidden)
        # What the other branch gives varies over the devices as the result does.
        return jax.lax.cond(some, light, lambda x: jnp.broadcast_to(x.ravel()[0], result.shape), hidden)

    some = jnp.sum(attention_mask) >= 0
    return for_platform(hidden, some, cpu=in_a_branch, default=lambda hidden, _: light(hidden))
