"""The views of a sentence: which column of the data is encoded, under which dropout masks, by which encoder.

A mask belongs to an example, so its key is folded from what names the example and from nothing else.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Integer, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.objectives.objective import Group

MEMBERS = 4  # anchor, positive, hard negative, neutral: at most
NOISE = 1 << 16  # the first number of a key that is for noise on embeddings
LANGUAGE_MODEL = 1 << 17  # of the masked-language-model pass: its dropout, a key a column
MASKING = LANGUAGE_MODEL + MEMBERS  # which of its tokens are masked


# From the number of a member of a group, and K, to the numbers of its masks: of several the embeddings are averaged.
# What each policy means is said in `config.fields.POLICIES`.
POLICY_MASKS: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "independent": lambda member, samples: (member,),  # SimCSE, equation 4
    "shared": lambda member, samples: (0,),  # "fixed 0.1" of SimCSE's Table 3
    "off": lambda member, samples: (),  # SimCSE++'s off-dropout
    "noisy": lambda member, samples: (member,),  # SimCSE++, section 3.1, as the next one
    "mean": lambda member, samples: tuple(MEMBERS * (1 + sample) + member for sample in range(samples)),
}


class View(NamedTuple):
    """One embedding of each example. Equal views are one."""

    column: int  # of the batch
    masks: tuple[int, ...]  # the numbers of its dropout masks: of several the embeddings are averaged; (): no dropout
    noise: int | None = None  # the number of the Gaussian noise on it
    tower: int = 0  # which of two encoders


def plan(
    num_columns: int, positive: str, negative: str | None = None, *, samples: int = 10, two_towers: bool = False
) -> tuple[tuple[View, ...], Group, Group]:
    """The views that a run needs.

    The policies, those of `config.fields.POLICIES`, say what the sentences of a pair, and its further negatives, get.

    Args:
      num_columns: of the data; with one, a sentence is its own positive.
      positive: the policy of the masks of a positive pair.
      negative: that of the negative pairs where they are encoded apart from the positive ones; None: they are the same.
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
      index: (B,) positions of these examples in the *global* batch, whatever part of it is at hand.
      numbers: V numbers, of masks or of other things that are drawn for an example.

    Returns:
      (V, B) typed threefry keys. Threefry and no other: under `vmap`, rbg ignores all keys but one.
    """
    step_key = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), step)
    keys = jax.vmap(jax.random.fold_in, (None, 0))(step_key, index)
    return jax.vmap(lambda number: jax.vmap(jax.random.fold_in, (0, None))(keys, number))(jnp.asarray(numbers))


def embed(
    views: Sequence[View],
    encode: Callable[[int, list[int], list[int] | None], jax.Array],
    noise: Callable[[int, tuple[int, ...]], jax.Array],
) -> Float[Array, "V B D"]:
    """(V, B, D) embeddings of the views, every encoding that several of them need done once.

    Args:
      views: V of them.
      encode: encode(tower, columns, masks) -> (P, B, D), P columns under as many masks (None: without dropout).
      noise: noise(number, (B, D)), what is added to a noisy view.
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
