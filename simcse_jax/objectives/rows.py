"""From the rows of a batch to embeddings: the keys of all that is drawn for a row, and the passes that encode views."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Integer, Key

from simcse_jax.choices import MASKED
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.changes import DRAWN, UNCHANGED, template_alone
from simcse_jax.models.masking import Masking, mask_tokens
from simcse_jax.models.model_types import AFTER_PADDING
from simcse_jax.models.pooling import FIRST_TOKEN, pool
from simcse_jax.models.sentence_encoder import SentenceEncoder
from simcse_jax.objectives.views import CHANGE, DENOISING, MASKING, NOISE, Draw, Pass, View, column_number

# input_ids, attention_mask: (B, C, T); index: (B,) in the global batch; label, score: (B,); present, text: (B, C), see
# `Corpus`; teacher: (B, C, E)
Batch = dict[str, AnyArray]
Kept = dict[str, dict[str, Array]]  # what objectives keep from step to step, by their names (`Objective.state`)
StepSettings = dict[str, Any]  # a pytree of scalars: changing one recompiles nothing


def dropout_keys(
    seed: Integer[AnyArray, ""] | int, step: Int[AnyArray, ""] | int, index: Int[AnyArray, " B"], numbers: Sequence[int]
) -> Key[Array, "V B"]:
    """A key for each view of each example: folded from (seed, step, index in the global batch, number).

    Args:
      seed, step: integer scalars, may be traced.
      index: (B,) positions of these examples in the *global* batch, also on a device that has only a part of it.
      numbers: V numbers, of masks or of other draws for an example.

    Returns:
      (V, B) typed threefry keys. They must be threefry: under `vmap`, rbg ignores all keys but one.
    """
    step_key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), step)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(step_key, index)
    return jax.vmap(lambda number: jax.vmap(jax.random.fold_in, (0, None))(keys, number))(jnp.asarray(numbers))


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows of a batch that are encoded at a time. Several columns P of B rows are stacked into P · B rows."""

    batch: Batch
    step: Int[AnyArray, ""]
    settings: StepSettings
    column_tokens: tuple[int, ...] = ()  # see `recipe.Recipe.most_tokens`
    drops_attention: bool = True  # see `recipe.Recipe`
    masking: Masking | None = None  # what must be known of the tokenizer; None: nothing is masked
    words: int = 0  # of the vocabulary, where something is masked

    def keys(self, numbers: Sequence[int]) -> Key[Array, "V B"]:
        """A key for each number and each row."""
        return dropout_keys(self.settings["seed"], self.step, self.batch["index"], numbers)

    def rates(self, name: str = "dropout") -> dict[str, Any]:
        """The encoder's arguments for the dropout rate of that name, and attention's and LoRA's if they have others."""
        other_rates = {f"{part}_dropout_rate": self.settings.get(f"{part}_dropout") for part in ("attention", "lora")}
        if not self.drops_attention:
            other_rates["attention_dropout_rate"] = 0.0
        return {"dropout_rate": self.settings[name]} | other_rates

    def read(self, columns: Sequence[int], length: int = 0) -> tuple[Int[Array, "PB T"], Int[Array, "PB T"]]:
        """The ids and the mask of P columns, T tokens of each row, the first `length`; 0: all."""
        parts = self.batch["input_ids"], self.batch["attention_mask"]
        ids, mask = (jnp.concatenate([part[:, column, : length or None] for column in columns]) for part in parts)
        return ids, mask

    def masked(
        self, columns: Sequence[int], numbers: Sequence[int] = (), **share: Any
    ) -> tuple[Int[Array, "PB T"], Bool[Array, "PB T"]]:
        """The ids of P columns with some of them masked, and which are; by default as the change `masked` has them.

        Args:
          columns: P of them.
          numbers: P numbers of the draws.
          **share: `probability`, the share of tokens; 15% without it.
        """
        assert self.masking is not None  # an objective declares that it masks tokens
        keys = self.keys(numbers or [column_number(MASKING, column) for column in columns]).reshape(-1)
        ids, mask = self.read(columns)
        return mask_tokens(keys, ids, mask, vocab_size=self.words, **self.masking._asdict() | share)

    def most_tokens(self, columns: Sequence[int]) -> int | None:
        """The maximum number of tokens of these columns; None if padding is computed too."""
        return sum(self.column_tokens[column] for column in columns) if self.column_tokens else None


class Towers(NamedTuple):
    """The encoders of views, and how an embedding is made of their layers."""

    encoders: Mapping[int | str, SentenceEncoder]  # by `View.tower`
    pooler: str
    use_head: bool
    denoising: str = "none"  # of `models.config.DENOISING`


def encode_views(
    towers: Towers, rows: Rows, views: Sequence[View], read: Sequence[View] = ()
) -> tuple[Float[Array, "B V D"], dict[View, Float[Array, "M B T D"]]]:
    """The embeddings of views and, of those in `read`, the last layer under each of their M masks."""
    encoded: dict[tuple[Pass, Draw], Array] = {}
    features: dict[View, Array] = {}
    for encoder_pass, draws in group_by_pass(views).items():
        needed = [view for view in read if view.encoder_pass == encoder_pass]
        embeddings, layers = encode_pass(towers, rows, encoder_pass, draws, needed)
        encoded |= {(encoder_pass, draw): embedding for draw, embedding in zip(draws, embeddings, strict=True)}
        features |= layers
    embeddings = jnp.stack([embed_view(rows, view, encoded) for view in views])
    return jnp.moveaxis(embeddings, 0, 1), features


def group_by_pass(views: Sequence[View]) -> dict[Pass, list[Draw]]:
    """The passes that encode views, each with its draws; an encoding that several views need is done once."""
    passes: dict[Pass, dict[Draw, None]] = {}
    for view in views:
        for draw in view.draws:
            passes.setdefault(view.encoder_pass, {})[draw] = None
    return {encoder_pass: list(draws) for encoder_pass, draws in passes.items()}


def encode_pass(
    towers: Towers, rows: Rows, encoder_pass: Pass, draws: Sequence[Draw], read: Sequence[View]
) -> tuple[Float[Array, "P B D"], dict[View, Float[Array, "M B T D"]]]:
    """The embeddings of P draws, and the last layer of the views in `read`, which are of this pass."""
    model, columns = towers.encoders[encoder_pass.tower], [draw.column for draw in draws]
    ids, mask, options = read_changed(rows, encoder_pass, draws, model.encoder.config.hidden_size)
    masks = [draw.mask for draw in draws]
    first_only = towers.pooler in FIRST_TOKEN and not read
    layers = encode_tokens(model, rows, encoder_pass, masks, ids, mask, first_only=first_only, **options)
    features = {}
    for view in read:
        tokens = jnp.split(layers[-1], len(columns))
        features[view] = jnp.stack([tokens[draws.index(draw)] for draw in view.draws])
    removed = embed_template(towers, model, rows, encoder_pass, masks, mask) if encoder_pass.removed else None
    embeddings = model.pooled(
        layers,
        mask,
        towers.pooler,
        towers.use_head,
        model.encoder.config.modules,
        is_mask_token=model.is_mask_token(ids),
        removed=removed,
    )
    return embeddings.reshape(len(columns), -1, embeddings.shape[-1]), features


def read_changed(
    rows: Rows, encoder_pass: Pass, draws: Sequence[Draw], size: int
) -> tuple[Int[Array, "PB T"], Int[Array, "PB T"], dict[str, Any]]:
    """The ids and the mask of a pass after its change, and the encoder's arguments for them.

    `size` is that of hidden states, of which a change may be drawn.
    """
    columns = [draw.column for draw in draws]
    ids, mask = rows.read(columns, encoder_pass.length)
    change = UNCHANGED
    if encoder_pass.change == MASKED:
        ids, _ = rows.masked(columns)
    elif encoder_pass.change != "none":
        keys = rows.keys([CHANGE + draw.change for draw in draws]).reshape(-1)
    most_tokens = rows.most_tokens(columns)
    if callable(encoder_pass.change):
        places = ids.size
        ids, mask = encoder_pass.change(keys, ids, mask)
        if most_tokens is not None:
            most_tokens += ids.size - places  # each row may have as many tokens more as it has places
    elif encoder_pass.change in DRAWN:
        change = DRAWN[encoder_pass.change](keys, mask, size, rows.settings["cutoff"])
    return ids, mask, {"most_tokens": most_tokens, "change": change}


def encode_tokens(
    model: SentenceEncoder,
    rows: Rows,
    encoder_pass: Pass,
    masks: Sequence[int],
    ids: Int[Array, "PB T"],
    mask: Int[Array, "PB T"],
    **options: Any,
) -> tuple[Float[Array, "PB _ _E"], ...]:
    """The hidden states that poolers read, under the dropout masks of these numbers if the pass has any."""
    keys = rows.keys(masks).reshape(-1) if encoder_pass.dropout else None
    return model.token_features(ids, mask, dropout_keys=keys, **rows.rates(encoder_pass.rate), **options)


def embed_template(
    towers: Towers,
    model: SentenceEncoder,
    rows: Rows,
    encoder_pass: Pass,
    masks: Sequence[int],
    mask: Int[Array, "PB T"],
) -> Float[Array, "PB D"]:
    """The embedding of a pass's template without the sentence, whose length moves positions."""
    assert encoder_pass.removed is not None
    config = model.encoder.config
    from_first_row = towers.denoising == "released" and config.positions == AFTER_PADDING
    first = -1 - config.pad_token_id if from_first_row else 0  # see `models.config.DENOISING`
    ids, template_mask, change = template_alone(encoder_pass.removed, jnp.sum(mask > 0, axis=1), first)
    numbers = [DENOISING + number for number in masks]
    layers = encode_tokens(model, rows, encoder_pass, numbers, ids, template_mask, change=change)
    return pool(layers, template_mask, towers.pooler, is_mask_token=model.is_mask_token(ids))


def embed_view(rows: Rows, view: View, encoded: Mapping[tuple[Pass, Draw], Float[Array, "B D"]]) -> Float[Array, "B D"]:
    """The mean of a view's encodings, with noise if it is a noisy one."""
    parts = [encoded[view.encoder_pass, draw] for draw in view.draws]
    embedding = parts[0] if len(parts) == 1 else jnp.mean(jnp.stack(parts), axis=0)
    if view.noise is None:
        return embedding
    draw = jax.vmap(lambda key: jax.random.normal(key, embedding.shape[1:]))
    return embedding + jnp.sqrt(rows.settings["noise"]) * draw(rows.keys([NOISE + view.noise])[0])
