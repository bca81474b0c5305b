"""The views of a sentence: which column of the data is encoded, under which dropout masks, by which encoder.

A mask belongs to an example, so its key is folded from what identifies the example and from nothing else.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Integer, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives.objective import Group

MEMBERS = 4  # anchor, positive, hard negative, neutral: at most
NOISE = 1 << 16  # the first number of the keys for noise on embeddings
LANGUAGE_MODEL = 1 << 17  # for dropout in the masked-language-model pass, a key for each column
MASKING = LANGUAGE_MODEL + MEMBERS  # which of its tokens are masked
# For replaced tokens, a key for each member: which tokens are masked, and dropout in the two networks that read them.
REPLACING, GENERATOR, FINDING = 1 << 18, (1 << 18) + MEMBERS, (1 << 18) + 2 * MEMBERS


# From the number of a member of a group, and K, to the numbers of its masks; several masks' embeddings are averaged.
# `config.fields.POLICIES` explains the policies.
POLICY_MASKS: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "independent": lambda member, samples: (member,),  # SimCSE, equation 4
    "shared": lambda member, samples: (0,),  # "fixed 0.1" of SimCSE's Table 3
    "off": lambda member, samples: (),  # SimCSE++'s off-dropout
    "noisy": lambda member, samples: (member,),  # SimCSE++, section 3.1, as the next one
    "mean": lambda member, samples: tuple(MEMBERS * (1 + sample) + member for sample in range(samples)),
}


class View(NamedTuple):
    """One embedding of each example. Equal views are computed once."""

    column: int  # of the batch
    masks: tuple[int, ...]  # the numbers of its dropout masks; several embeddings are averaged; (): no dropout
    noise: int | None = None  # the number of its Gaussian noise
    tower: int = 0  # which of two encoders


def plan(
    num_columns: int, positive: str, negative: str | None = None, *, samples: int = 10, two_towers: bool = False
) -> tuple[tuple[View, ...], Group, Group]:
    """The views that a run needs.

    The policies of `config.fields.POLICIES` decide the masks of a pair's sentences and of further negatives.

    Args:
      num_columns: of the data; with one, a sentence is its own positive.
      positive: the policy of the masks of a positive pair.
      negative: the policy of the negative pairs if they are encoded separately; None: they use the positive views.
      samples: K of the policy `mean`.
      two_towers: a second encoder for all but the anchors.

    Returns:
      The views, each once; those of the positive pairs; those of the negative pairs.
    """
    columns = (0, 0) if num_columns == 1 else tuple(range(num_columns))

    def view(member: int, policy: str) -> View:
        noise = member if policy == "noisy" else None
        return View(columns[member], POLICY_MASKS[policy](member, samples), noise, int(two_towers and member > 0))

    groups = [[view(member, policy) for member in range(len(columns))] for policy in (positive, negative or positive)]
    views = list(dict.fromkeys(groups[0] + groups[1]))

    def group(members: Sequence[View]) -> Group:
        anchor, positive, *hard_negatives = map(views.index, members)
        return Group(anchor, positive, tuple(hard_negatives))

    return tuple(views), group(groups[0]), group(groups[1])


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


def embed(
    views: Sequence[View],
    encode: Callable[[int, list[int], list[int] | None], jax.Array],
    noise: Callable[[int, tuple[int, ...]], jax.Array],
) -> Float[Array, "V B D"]:
    """(V, B, D) embeddings of the views; an encoding that several views need is done once.

    Args:
      views: V of them.
      encode: encode(tower, columns, masks) -> (P, B, D), P columns under as many masks (None: without dropout).
      noise: noise(number, (B, D)), which is added to a noisy view.
    """
    passes: dict[tuple[int, bool], dict[tuple[int, int | None], None]] = {}
    for view in views:
        for mask in view.masks or (None,):
            passes.setdefault((view.tower, mask is None), {})[view.column, mask] = None
    encoded: dict[tuple[int, int, int | None], jax.Array] = {}
    for (tower, off), wanted in passes.items():
        columns, masks = (list(part) for part in zip(*wanted, strict=True))
        embeddings = encode(tower, columns, None if off else masks)
        encoded |= {(tower, *key): embedding for key, embedding in zip(wanted, embeddings, strict=True)}

    def finish(view: View) -> jax.Array:
        parts = [encoded[view.tower, view.column, mask] for mask in view.masks or (None,)]
        embedding = parts[0] if len(parts) == 1 else jnp.mean(jnp.stack(parts), axis=0)
        return embedding if view.noise is None else embedding + noise(view.noise, embedding.shape)

    return jnp.stack([finish(view) for view in views])
