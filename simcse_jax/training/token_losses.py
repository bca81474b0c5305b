"""Losses of tokens, in passes of their own: hidden words are guessed, and replaced ones are found."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from simcse_jax.devices.chunks import in_chunks
from simcse_jax.models import parameters
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.language_model import activation, logits
from simcse_jax.models.masking import mask_tokens, select_positions
from simcse_jax.models.padding import Layout, Padded, unpadded
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import Graph
from simcse_jax.objectives import info_nce
from simcse_jax.objectives.masked_lm import masked_lm
from simcse_jax.objectives.replaced_token_detection import DISCRIMINATOR, HEAD, NAME, replaced_token_detection
from simcse_jax.training.rows import Rows
from simcse_jax.training.views import FINDING, GENERATOR, LANGUAGE_MODEL, MASKING, REPLACING, column_number


class LanguageModel(NamedTuple):
    """What masking needs to know of the tokenizer."""

    mask_id: int
    special_ids: tuple[int, ...]


class Replacement(NamedTuple):
    """The networks that replace tokens and find them again, and how tokens are masked for the first one."""

    generator: Graph
    discriminator: Graph
    masking: LanguageModel


Losses = tuple[Float[Array, " B"], Int[Array, " B"]]  # for each row, the sum over its tokens and their number


def masked_token_losses(
    graph: Graph, language_model: LanguageModel, columns: Sequence[int], params: Params, rows: Rows
) -> Losses:
    """The losses at the masked tokens of some columns, by the first encoder."""
    _, mask = rows.tokens(columns)
    shown, selected = mask_columns(language_model, columns, params, rows)
    encoder = parameters.merge(graph, parameters.sentence_encoder(params)).encoder
    hidden = encoder(
        shown,
        mask,
        dropout_keys=rows.keys([column_number(LANGUAGE_MODEL, column) for column in columns]).reshape(-1),
        **rows.rates(),
        most_tokens=rows.most_tokens(columns),
    )[-1]
    return guess_tokens(encoder.config, hidden, selected, columns, params, rows)


def mask_columns(
    language_model: LanguageModel, columns: Sequence[int], params: Params, rows: Rows
) -> tuple[Int[Array, "PB T"], Bool[Array, "PB T"]]:
    """The token ids of P columns with 15% of them masked, and which of them are to be guessed."""
    size = len(params[parameters.WORD_EMBEDDING])
    keys = rows.keys([column_number(MASKING, column) for column in columns])
    return mask_tokens(keys.reshape(-1), *rows.tokens(columns), vocab_size=size, **language_model._asdict())


def guess_tokens(
    config: EncoderConfig,
    hidden: Float[Array, "PB T D"],
    selected: Bool[Array, "PB T"],
    columns: Sequence[int],
    params: Params,
    rows: Rows,
) -> Losses:
    """The losses at the selected tokens of P columns, from their last hidden states."""
    ids, _ = rows.tokens(columns)
    # Logits only where they are needed: at half of the positions, three times as many as are masked on average.
    positions, valid = select_positions(selected, -(-ids.shape[1] // 2))
    hidden = jnp.take_along_axis(hidden, positions[:, :, None], axis=1).astype(jnp.float32)
    labels = jnp.take_along_axis(ids, positions, axis=1)
    losses = masked_lm(
        hidden.reshape(-1, hidden.shape[-1]),
        labels.reshape(-1),
        parameters.subset(params, parameters.LANGUAGE_MODEL),
        params[parameters.WORD_EMBEDDING],
        activation=activation(config),
        eps=config.layer_norm_eps,
    ).reshape(valid.shape)
    parts = jnp.where(valid, losses, 0.0), valid
    sums, counts = (jnp.sum(part, axis=1).reshape(len(columns), -1) for part in parts)  # (P, B)
    if "present" in rows.batch:  # a sentence that stands in for a missing one was counted in its own column
        there = rows.batch["present"].T[jnp.array(columns)]
        sums, counts = jnp.where(there, sums, 0.0), jnp.where(there, counts, 0)
    return jnp.sum(sums, axis=0), jnp.sum(counts, axis=0)


def replace_tokens(
    replacement: Replacement, columns: Sequence[int], generator: parameters.Arrays, rows: Rows
) -> Int[Array, "B P T"]:
    """Sentences as the generator reads them with some of their words hidden: DiffCSE's x″.

    A share `masking_rate` of the tokens is masked, 80% of them by the mask token, 10% by a random one, 10% not at all.
    Then every token becomes the generator's most probable one. DiffCSE's paper samples words at the masked positions
    alone; its code, which made the published models, takes the most probable one at all positions, and so do we. The
    first token stays what it was.

    Args:
      replacement: the generator's graph, and the special tokens, which are never masked.
      columns: of the batch, one for each of P members of a pair; both may be the same.
      generator: the generator's parameters, with its language-model head. They get no gradient.
      rows: B rows. Each member has draws of its own, for masks of tokens and for dropout.

    Returns:
      (B, P, T) token ids.
    """
    ids, mask = rows.tokens(columns)
    members, table = range(len(columns)), generator[parameters.WORD_EMBEDDING]
    masked, _ = mask_tokens(
        rows.keys([REPLACING + member for member in members]).reshape(-1),
        ids,
        mask,
        vocab_size=len(table),
        probability=rows.settings["objective"][NAME]["masking_rate"],
        **replacement.masking._asdict(),
    )
    encoder = parameters.merge(replacement.generator, parameters.sentence_encoder(generator)).encoder
    most_tokens = rows.most_tokens(columns)
    hidden = encoder(
        masked,
        mask,
        dropout_keys=rows.keys([GENERATOR + member for member in members]).reshape(-1),
        **rows.rates(),
        most_tokens=most_tokens,
    )[-1]
    head = parameters.subset(generator, parameters.LANGUAGE_MODEL)

    def likeliest(hidden: Float[AnyArray, "R D"]) -> Int[Array, " R"]:
        scores = logits(hidden, head, table, activation=activation(encoder.config), eps=encoder.config.layer_norm_eps)
        return jnp.argmax(scores, axis=1)

    layout: Layout = Padded(ids.shape[1])
    if most_tokens is not None and most_tokens < ids.size:  # no logits of padding
        layout = unpadded(mask, most_tokens)
    tokens = layout.to_tokens(hidden)
    flat = in_chunks(likeliest, max(1, info_nce.SIMILARITIES // len(table)), tokens.reshape(-1, tokens.shape[-1]))
    guessed = layout.to_rows(flat.reshape(tokens.shape[:-1])).astype(ids.dtype)
    kept = (mask == 0) | (jnp.arange(ids.shape[1]) == 0)
    replaced = jnp.where(kept, ids, guessed).reshape(len(columns), -1, ids.shape[1])
    return jnp.moveaxis(replaced, 0, 1)


def replaced_token_losses(
    replacement: Replacement,
    columns: Sequence[int],
    params: Params,
    rows: Rows,
    replaced: Int[AnyArray, "B P T"],
    sentences: Float[AnyArray, "B P D"],
) -> Losses:
    """The losses of finding replaced tokens, over all tokens of a row's sentences.

    The discriminator, a second encoder, reads the replaced sentence, and in the place of its first token the embedding
    of the original one (DiffCSE, section 3). So the gradient reaches the sentence encoder through that alone.

    Args:
      replacement: the discriminator's graph.
      columns: of the original sentences, as for `replace_tokens`.
      params: everything trained.
      rows: B rows.
      replaced: (B, P, T) ids from `replace_tokens`.
      sentences: (B, P, D) embeddings of the original sentences.
    """
    ids, mask = rows.tokens(columns)
    shown = jnp.moveaxis(replaced, 1, 0).reshape(ids.shape)
    encoder = parameters.merge(replacement.discriminator, parameters.subset(params, DISCRIMINATOR)).encoder
    hidden = encoder(
        shown,
        mask,
        dropout_keys=rows.keys([FINDING + member for member in range(len(columns))]).reshape(-1),
        **rows.rates(),
        most_tokens=rows.most_tokens(columns),
        first=jnp.moveaxis(sentences, 1, 0).reshape(len(ids), -1),
    )[-1]
    losses = replaced_token_detection(hidden, shown != ids, **parameters.subset(params, HEAD))
    real: Bool[Array, "PB T"] = mask > 0
    sums, counts = (jnp.sum(part, axis=1).reshape(len(columns), -1) for part in (jnp.where(real, losses, 0.0), real))
    return jnp.sum(sums, axis=0), jnp.sum(counts, axis=0)
