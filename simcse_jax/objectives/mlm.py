"""Masked language modelling, SimCSE's auxiliary objective. Shapes: V words, P predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from simcse_jax.choices import MASKED
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.language_model import fresh_head, logits
from simcse_jax.models.masking import select_positions
from simcse_jax.models.parameters import WORD_EMBEDDING, subset
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.objective import Parameters
from simcse_jax.objectives.similarity import map_rows
from simcse_jax.objectives.tokens import ENCODER, Sums, Tokens
from simcse_jax.objectives.views import LANGUAGE_MODEL, Plan, Views, column_number, flatten_views

PREFIX = "language_model."  # of the names of its parameters, as in `models.parameters`


def masked_lm(
    hidden: Float[AnyArray, "P D"],
    labels: Int[AnyArray, " P"],
    head: Mapping[str, AnyArray],
    word_embedding: Float[AnyArray, "V E"],
    config: EncoderConfig,
) -> Float[Array, " P"]:
    """The cross-entropy of the masked words, one per prediction, in float32.

        ℓ_p = −log softmax( E LayerNorm(act(W h_p + b)) + b_V )_{label_p}

    The language-model head of BERT (Devlin et al. 2019, task 1 of Section 3.1) and RoBERTa, whose decoder E is tied to
    the word embeddings; SimCSE adds its mean with weight λ (Appendix A, Table D.2). A decoder's head is linear.

    `hidden` are the last hidden states at the positions to predict, `labels` the original tokens, `head` as in
    `language_model.logits`.
    """

    def losses(hidden: Float[AnyArray, "R D"], labels: Int[AnyArray, " R"]) -> Float[Array, " R"]:
        scores = logits(hidden, head, word_embedding, config)
        return jax.nn.logsumexp(scores, axis=1) - jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]

    return map_rows(losses, len(word_embedding), hidden, labels)


def _fresh(encoder: EncoderConfig, key: Key[Array, ""]) -> dict[str, Array]:
    return {PREFIX + name: value for name, value in fresh_head(encoder, key).items()}


class MaskedLM(declarations.MaskedLM):
    """Hidden words of the sentences that the first encoder reads, in a pass of its own or that of the anchors."""

    parameters = Parameters(_fresh, stream=0x68656166, pretrained="language-model head")

    def views(self, plan: Plan) -> Views:
        """The anchors if they are embedded with masked tokens: then their pass is that of the language model too."""
        return {"anchor": plan.pair()["anchor"]} if plan.anchor_change == MASKED else {}

    def tokens(self, tokens: Tokens) -> Sums:
        """The losses at the masked tokens of each row's sentences."""
        if "anchor" in tokens.features:
            hidden = tokens.features["anchor"]
            columns, hidden = [0] * len(hidden), hidden.reshape(-1, *hidden.shape[2:])
            _, selected = tokens.rows.masked(columns)
        else:
            columns = sorted(
                {number for view in flatten_views(tokens.plan.pair()) if not view.tower for number in view.columns}
            )
            shown, selected = tokens.rows.masked(columns)
            numbers = [column_number(LANGUAGE_MODEL, column) for column in columns]
            hidden = tokens.encode(ENCODER, shown, columns, numbers)
        return guess_tokens(tokens, hidden, selected, columns)

    def loss(self, embedded: Embedded, **_: Any) -> Float[Array, ""]:
        """The mean over the masked tokens of the global batch."""
        return embedded.mean_of_tokens(*embedded.tokens)


def guess_tokens(
    tokens: Tokens, hidden: Float[Array, "PB T D"], selected: Bool[Array, "PB T"], columns: Sequence[int]
) -> Sums:
    """The losses at the selected tokens of P columns, from their last hidden states.

    A decoder's head guesses the next word, so that its hidden states are those one position earlier: masked next token
    prediction (BehnamGhader et al. 2024, arXiv:2404.05961, Section 2.1). A text's first token is not guessed.
    """
    ids, _ = tokens.rows.read(columns)
    config = tokens.networks[ENCODER].config
    selected = selected.at[:, 0].set(False) if config.guesses_next else selected
    # Logits only where they are needed: at half of the positions, three times as many as are masked on average.
    positions, valid = select_positions(selected, -(-ids.shape[1] // 2))
    read = jnp.maximum(positions - 1, 0) if config.guesses_next else positions
    hidden = jnp.take_along_axis(hidden, read[:, :, None], axis=1).astype(jnp.float32)
    labels = jnp.take_along_axis(ids, positions, axis=1)
    losses = masked_lm(
        hidden.reshape(-1, hidden.shape[-1]),
        labels.reshape(-1),
        subset(tokens.params, PREFIX),
        tokens.params[WORD_EMBEDDING],
        config,
    )
    return tokens.sums(losses.reshape(valid.shape), valid, columns)
