"""InfoNCE with more negatives than a batch has: a queue of embeddings of a momentum encoder, as in ESimCSE."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.convolutions import PREFIX
from simcse_jax.objectives import declarations
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.negatives import Candidates
from simcse_jax.objectives.similarity import map_rows, normalize
from simcse_jax.objectives.views import RATE, Plan, View

QUEUE, FILLED = "queue", "filled"  # names in the state, besides those of the momentum encoder's parameters


def momentum_contrast(
    anchors: Float[AnyArray, "B D"],
    positives: Float[AnyArray, "N D"],
    hard_negatives: Float[AnyArray, "*H N D"] | None,
    queue: Float[AnyArray, "M D"],
    filled: Int[AnyArray, ""] | int,
    positions: Int[AnyArray, " B"],
    *,
    temperature: Float[AnyArray, ""] | float,
    candidates: Candidates | None = None,
) -> Float[Array, " B"]:
    """InfoNCE with in-batch negatives and those of a queue, one loss per anchor.

        ℓ_i = −log  e^{s(h_i, h_i⁺)} / ( Σ_j e^{s(h_i, h_j⁺)} + Σ_j e^{s(h_i, h_j⁻)} + Σ_m e^{s(h_i, q_m)} )

    with s = cosine / τ, j over the N examples of the global batch, m over the queue: ESimCSE (Wu et al. 2022,
    arXiv:2109.04380) equation 6. It has no hard negatives h⁻; we add them as SimCSE's equation 5 does. With an empty
    queue this is `info_nce`.

    Args:
      anchors: (B, D) the local rows.
      positives: (N, D) of the global batch.
      hard_negatives: (N, D) of the global batch, (H, N, D) for H kinds of them, or None.
      queue: (M, D) embeddings of earlier steps, the newest last.
      filled: how many of them, the last ones, are there.
      positions: (B,) the row of `positives` that belongs to each anchor.
      candidates: which positives and hard negatives of the batch are left out of the sums; None keeps all. Those of
        the queue have no texts, and stay.
    """
    candidate_rows = [jnp.asarray(positives)]
    if hard_negatives is not None:
        candidate_rows.append(jnp.asarray(hard_negatives).reshape(-1, hard_negatives.shape[-1]))  # kind after kind
    of_batch = sum(map(len, candidate_rows))
    candidate_rows.append(jnp.asarray(queue))
    kept = [jnp.ones(of_batch, bool), jnp.arange(len(queue)) >= len(queue) - filled]
    columns, counted = normalize(jnp.concatenate(candidate_rows)), jnp.concatenate(kept)

    def losses(
        anchors: Float[AnyArray, "R D"], positions: Int[AnyArray, " R"], pairs: Int[AnyArray, "R 2"] | None
    ) -> Float[Array, " R"]:
        logits = jnp.where(counted, anchors @ columns.T / temperature, -jnp.inf)
        if candidates is not None:
            batch_logits = candidates.kept(logits[:, :of_batch], positions, pairs)
            logits = jnp.concatenate([batch_logits, logits[:, of_batch:]], axis=1)
        return jax.nn.logsumexp(logits, axis=1) - jnp.take_along_axis(logits, positions[:, None], axis=1)[:, 0]

    return map_rows(losses, len(columns), normalize(anchors), positions, candidates and candidates.pairs)


class MomentumContrast(declarations.MomentumContrast):
    """ESimCSE's contrast. Its state is the queue and the momentum encoder, which encodes what enters it.

    The queue is in the order of the global batch, so it is the same on any number of devices and in any chunks. It gets
    the anchors of each step, unchanged and without dropout, after the step's loss has been computed.
    """

    def initial_state(
        self, encoder: EncoderConfig, params: Mapping[str, AnyArray], key: Key[Array, ""], **fields: Any
    ) -> dict[str, Array]:
        """The momentum encoder, by the names of the encoder's trained parameters, and an empty queue.

        As released it is random, as BERT's weights before pretraining are: the code copies the encoder before the
        pretrained weights are read. It follows the encoder before it encodes anything.
        """
        slow_params = {name: jnp.array(value) for name, value in params.items() if _is_copied(name)}
        if fields["reading"] == "released":
            slow_params = {
                name: _random(jax.random.fold_in(key, place), name, value)
                for place, (name, value) in enumerate(sorted(slow_params.items()))
            }
            slow_params = _follow(slow_params, params, fields["momentum"])
        queue = jnp.zeros((fields["queue"], encoder.sentence_size), jnp.float32)
        return {**slow_params, QUEUE: queue, FILLED: jnp.zeros((), jnp.int32)}

    def state_views(self, plan: Plan) -> Mapping[str, View]:
        """The anchors by the momentum encoder. A head is the trained one, as in the released code."""
        anchor = plan.pair()["anchor"]
        assert isinstance(anchor, View)
        plain = anchor._replace(masks=(), noise=None, change="none", changed=0, rate=RATE)
        return {"anchor": plain._replace(tower=self.name)}

    def next_state(
        self,
        state: Mapping[str, Array],
        views: Mapping[str, Float[Array, "N D"]],
        params: Mapping[str, Array],
        **fields: Any,
    ) -> dict[str, Array]:
        """The batch enters the queue, the oldest leave it, and the momentum encoder follows (equation 5)."""
        size, rows = len(state[QUEUE]), views["anchor"]
        slow_params = {name: value for name, value in state.items() if _is_copied(name)}
        return {
            **_follow(slow_params, params, fields["momentum"]),
            QUEUE: jnp.concatenate([state[QUEUE], rows])[-size:],
            FILLED: jnp.minimum(state[FILLED] + len(rows), size),
        }

    def loss(self, embedded: Embedded, *, temperature: Float[AnyArray, ""] | float, **_: Any) -> Float[Array, ""]:
        """The mean of `momentum_contrast` over the batch."""
        anchors, state = embedded["anchor"], embedded.state
        assert state is not None
        positives, hard_negatives = embedded.everywhere("positive", "hard_negatives")
        losses = momentum_contrast(
            anchors,
            positives,
            hard_negatives,
            state[QUEUE][:, : anchors.shape[1]],  # truncated as the embeddings are
            state[FILLED],
            embedded.own,
            temperature=temperature,
            candidates=embedded.candidates("positive", "hard_negatives"),
        )
        return embedded.mean(losses)


def _is_copied(name: str) -> bool:
    """Whether the momentum encoder has a parameter of its own of this name."""
    return name.startswith(("encoder.", PREFIX))


def _follow(slow_params: Mapping[str, Array], params: Mapping[str, AnyArray], momentum: Any) -> dict[str, Array]:
    """γ · slow_params + (1 − γ) · params."""
    return {name: momentum * value + (1 - momentum) * params[name] for name, value in slow_params.items()}


def _random(key: Key[Array, ""], name: str, like: Array) -> Array:
    """A parameter as BERT's initialization has it: N(0, 0.02²), biases 0 and scales 1."""
    if name.endswith((".scale", ".bias")):
        return jnp.full(like.shape, float(name.endswith(".scale")), like.dtype)
    return 0.02 * jax.random.normal(key, like.shape, like.dtype)
