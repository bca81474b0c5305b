"""Replaced-token detection, DiffCSE's objective in addition to a contrastive one."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.language_model import logits
from simcse_jax.models.masking import gumbel, token_keys
from simcse_jax.models.parameters import LANGUAGE_MODEL, WORD_EMBEDDING, subset
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.objective import Parameters
from simcse_jax.objectives.similarity import replace_rows
from simcse_jax.objectives.tokens import DISCRIMINATOR, GENERATOR, Tokens
from simcse_jax.objectives.views import FINDING, REPLACING, WRITING

HEAD = "replaced_token_detection."  # the names of its layer's parameters start with this


def replaced_token_detection(
    hidden: Float[AnyArray, "B T D"],
    replaced: Bool[AnyArray, "B T"],
    kernel: Float[AnyArray, "D 2"],
    bias: Float[AnyArray, " 2"],
) -> Float[Array, "B T"]:
    """The cross-entropy of a decision for each token: is it the original, or was it replaced?

        ℓ_t = −log softmax(W h_t + b)_{[x″_t ≠ x_t]}

    ELECTRA's objective (Clark et al. 2020, arXiv:2003.10555) conditioned on a sentence embedding: Chuang et al. 2022
    (arXiv:2204.10298), section 3. The discriminator that makes h reads the embedding of the original sentence in the
    place of its first token.

    The objective is the mean over all real tokens of the global batch, the first and the last of a sentence included;
    with `reduction=sum`, as in the paper, their sum over a sentence's tokens, and its mean over the 2N sentences of N
    pairs. DiffCSE's code takes the mean over all positions of its padded batch, where padding has the label "original".
    Where padding adds nothing to the sum, that is ours times the share of positions that are tokens: λ = 0.005 there is
    about 0.005 times this share here. ⚠ The share is that of the authors' data; the recipe keeps λ as the paper has it.

    The kernel is Wᵀ. Losses are float32; those of padding mean nothing.
    """
    scores = jnp.asarray(hidden, jnp.float32) @ kernel + bias
    return jax.nn.logsumexp(scores, axis=2) - jnp.where(replaced, scores[..., 1], scores[..., 0])


def _fresh(encoder: EncoderConfig, key: Key[Array, ""]) -> dict[str, Array]:
    """The linear layer as PyTorch initializes one: U(±1/√D), with its bias."""
    bound, (kernel_key, other) = encoder.hidden_size**-0.5, jax.random.split(key)
    return {
        f"{HEAD}kernel": jax.random.uniform(kernel_key, (encoder.hidden_size, 2), jnp.float32, -bound, bound),
        f"{HEAD}bias": jax.random.uniform(other, (2,), jnp.float32, -bound, bound),
    }


class ReplacedTokenDetection(declarations.ReplacedTokenDetection):
    """DiffCSE's second pass, over the pairs' two sentences with words of the generator."""

    parameters = Parameters(_fresh, stream=0x68656168, copy_of_encoder=f"{DISCRIMINATOR}.")

    def drawn(self, tokens: Tokens) -> Int[Array, "B P T"]:
        """Sentences as the generator reads them with some of their words hidden: DiffCSE's x″.

        A share `masking_rate` of the tokens is masked, 80% of them by the mask token, 10% by a random one, 10% not at
        all. Then, as released, every token but the first becomes the generator's most probable one; the paper draws
        words from its distribution, at the masked positions alone. Each of the P sentences of a row has draws of its
        own.
        """
        columns, rows, generator = tokens.plan.pair_columns, tokens.rows, tokens.networks[GENERATOR]
        ids, mask = rows.read(columns)
        draws, rate = (REPLACING, REPLACING + 1), tokens.fields["masking_rate"]
        masked, selected = rows.masked(columns, draws, probability=rate)
        hidden = tokens.encode(GENERATOR, masked, columns, (WRITING, WRITING + 1))
        table, head = generator.params[WORD_EMBEDDING], subset(generator.params, LANGUAGE_MODEL)

        sampled = tokens.fields["reading"] == "paper"
        keys = token_keys(rows.keys(draws).reshape(-1), ids.shape[1])

        def word(
            hidden: Float[AnyArray, "R D"], first: UInt32[AnyArray, " R"], second: UInt32[AnyArray, " R"]
        ) -> Int[Array, " R"]:
            scores = logits(hidden, head, table, generator.config)
            scores += gumbel(first, second, len(table)) if sampled else 0
            return jnp.argmax(scores, axis=1)

        wanted = selected if sampled else (mask > 0) & (jnp.arange(ids.shape[1]) > 0)
        states = jax.lax.stop_gradient(hidden).reshape(-1, hidden.shape[-1])
        ids_of, wanted_of, *of_key = (x.reshape(-1) for x in (ids, wanted, *keys))
        replaced = replace_rows(ids_of, wanted_of, word, len(table), states, *of_key)
        return jnp.moveaxis(replaced.reshape(len(columns), -1, ids.shape[1]), 0, 1)

    def second_pass(
        self, tokens: Tokens, drawn: Int[Array, "B P T"], embeddings: Mapping[str, Array]
    ) -> list[AnyArray]:
        """Sums over all tokens of a row's sentences: losses of finding replaced ones, tokens, replaced, right ones.

        The discriminator, a second encoder, reads the replaced sentence, and the embedding of the original one in the
        place of its first token. So the gradient reaches the sentence encoder through that alone.
        """
        columns = tokens.plan.pair_columns
        ids, mask = tokens.rows.read(columns)
        shown = jnp.moveaxis(drawn, 1, 0).reshape(ids.shape)
        first = jnp.concatenate([embeddings["anchor"], embeddings["positive"]])
        hidden = tokens.encode(DISCRIMINATOR, shown, columns, [FINDING, FINDING + 1], first=first)
        head = tokens.params[f"{HEAD}kernel"], tokens.params[f"{HEAD}bias"]
        replaced = shown != ids
        losses = replaced_token_detection(hidden, replaced, *head)
        right = losses < jnp.log(2.0)  # the right one of two has more than half of the probability
        counted = [tokens.sums(hits.astype(jnp.float32), mask > 0, columns)[0] for hits in (replaced, right)]
        return [*tokens.sums(losses, mask > 0, columns), *counted]

    # The generator's pass has read the other fields.
    def loss(self, embedded: Embedded, *, reduction: str = "mean", **_: Any) -> Float[Array, ""]:
        """The mean over all tokens of the global batch, or over its sentences the mean of their sums."""
        losses, counts, *_ = embedded.tokens
        if reduction == "sum":
            return embedded.mean(losses) / 2  # a row has the losses of both sentences of its pair
        return embedded.mean_of_tokens(losses, counts)

    def measures(self, embedded: Embedded) -> dict[str, Float[Array, ""]]:
        """Shares of tokens: those `replaced`, the discriminator's `accuracy`, and `majority`, one answer's for all."""
        _, counts, replaced, right = embedded.tokens
        share, accuracy = (embedded.mean_of_tokens(hits, counts) for hits in (replaced, right))
        return {"replaced": share, "accuracy": accuracy, "majority": jnp.maximum(share, 1 - share)}
