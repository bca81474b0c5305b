"""The views of a sentence: which column of the data is encoded, changed or not, under which masks, by which encoder.

A mask or a change belongs to an example, so its key is folded from what identifies the example and from nothing else.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Integer, Key

from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import MASKED
from simcse_jax.objectives.objective import Group

MEMBERS = 4  # anchor, positive, and two hard negatives, one after the other in the numbers of masks
FURTHER = 1 << 24  # the first number of masks of further hard negatives: above all others
NOISE = 1 << 16  # the first number of the keys for noise on embeddings
LANGUAGE_MODEL = 1 << 17  # for dropout in the masked-language-model pass, a key for each column
MASKING = LANGUAGE_MODEL + MEMBERS  # which of its tokens are masked
CHANGE = 1 << 19  # the first number of the keys for changes of the input
SPREAD = 1 << 12  # between the numbers of a view's columns: above all numbers of masks
RATE, POSITIVE_RATE = "dropout", "positive_dropout"  # numbers of the step: the last parts of two fields' names
# For replaced tokens, a key for each member: which tokens are masked, and dropout in the two networks that read them.
REPLACING, GENERATOR, FINDING = 1 << 18, (1 << 18) + MEMBERS, (1 << 18) + 2 * MEMBERS


def mask_number(member: int, place: int = 0) -> int:
    """The number of a mask of a member of a group, of several the one at `place`; no two have the same."""
    return MEMBERS * place + member if member < MEMBERS else FURTHER + SPREAD * place + member


def column_number(first: int, column: int) -> int:
    """The number of a column's draw, of those that begin at `first`; further columns have theirs above all others."""
    return first + column if column < MEMBERS else 2 * FURTHER + SPREAD * (first - LANGUAGE_MODEL) + column


# From the number of a member of a group, and K, to the numbers of its masks; several masks' embeddings are averaged.
# `config.loss_fields.POLICIES` explains the policies.
POLICY_MASKS: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "independent": lambda member, samples: (mask_number(member),),  # SimCSE, equation 4
    "shared": lambda member, samples: (0,),  # "fixed 0.1" of SimCSE's Table 3
    "off": lambda member, samples: (),  # SimCSE++'s off-dropout
    "noisy": lambda member, samples: (mask_number(member),),  # SimCSE++, section 3.1, as the next one
    "mean": lambda member, samples: tuple(mask_number(member, 1 + sample) for sample in range(samples)),
}


class Input(NamedTuple):
    """How the members of a positive pair are encoded, apart from the masks. Further columns are as the defaults.

    The separate negative pairs of an objective (`negative` of `plan`) have neither changes nor a rate of their own:
    they are encoded separately to be without such noise.
    """

    anchor_change: str = "none"  # of `models.config.CHANGES`
    positive_change: str = "none"
    positive_rate: bool = False  # whether the positive has a dropout rate of its own


PLAIN = Input()


class Pass(NamedTuple):
    """What sentences must share to be encoded together."""

    tower: int = 0  # which of two encoders
    masked: bool = True  # whether under dropout masks
    rate: str = RATE  # the name of their dropout rate among the numbers of the step
    change: str = "none"
    length: int = 0  # the places of a sentence; 0: all that the batch has


class View(NamedTuple):
    """One embedding of each example. Equal views are computed once."""

    column: int  # of the batch
    masks: tuple[int, ...]  # the numbers of its dropout masks; several embeddings are averaged; (): no dropout
    noise: int | None = None  # the number of its Gaussian noise
    tower: int = 0
    change: str = "none"
    changed: int = 0  # the number of its change, the same under all of its masks
    rate: str = RATE
    others: tuple[int, ...] = ()  # further columns, whose embeddings are averaged with that of `column`
    length: int = 0  # the places of a sentence; 0: all that the batch has

    @property
    def columns(self) -> tuple[int, ...]:
        """All of its columns."""
        return (self.column, *self.others)

    @property
    def draws(self) -> list[tuple[int, int, int]]:
        """The column, the mask's number and the change's number of each embedding that is averaged."""
        columns = [(SPREAD * place, column) for place, column in enumerate(self.columns)]
        return [
            (column, first + mask, first + self.changed) for first, column in columns for mask in self.masks or (0,)
        ]

    @property
    def encoded_in(self) -> Pass:
        """The pass that encodes it."""
        length = 0 if self.change == MASKED else self.length  # masked tokens are drawn for all places
        return Pass(self.tower, bool(self.masks), self.rate, self.change, length)


def plan(
    num_columns: int,
    positive: str,
    negative: str | None = None,
    *,
    samples: int = 10,
    two_towers: bool = False,
    inputs: Input = PLAIN,
    positives: int = 1,
    lengths: Sequence[int] = (),
) -> tuple[tuple[View, ...], Group, Group]:
    """The views that a run needs.

    The policies of `config.loss_fields.POLICIES` decide the masks of a pair's sentences and of further negatives.

    Args:
      num_columns: of the data; with one, a sentence is its own positive.
      positive: the policy of the masks of a positive pair.
      negative: the policy of the negative pairs if they are encoded separately; None: they use the positive views.
      samples: K of the policy `mean`.
      two_towers: a second encoder for all but the anchors.
      positives: the columns after the anchors whose mean embedding is the positive; above 1, there are no others.
      inputs: changes of the positive pairs' sentences, and whether positives have a rate of their own.
      lengths: the places for a sentence of each column; (): all have the same.

    Returns:
      The views, each once; those of the positive pairs; those of the negative pairs.
    """
    columns = (0, 0) if num_columns == 1 else tuple(range(num_columns - positives + 1))

    def view(member: int, policy: str, inputs: Input) -> View:
        masks, noise = POLICY_MASKS[policy](member, samples), member if policy == "noisy" else None
        change = (inputs.anchor_change, inputs.positive_change, "none")[min(member, 2)]
        others = tuple(range(2, 1 + positives)) if member == 1 else ()
        return View(
            columns[member],
            masks,
            noise,
            tower=int(two_towers and member > 0),
            change=change,
            changed=0 if change == "none" else member,
            others=others,
            length=max(lengths[column] for column in (columns[member], *others)) if lengths else 0,
            rate=POSITIVE_RATE if member == 1 and masks and inputs.positive_rate else RATE,
        )

    members = range(len(columns))
    pairs = [view(member, positive, inputs) for member in members]
    others = pairs if negative is None else [view(member, negative, PLAIN) for member in members]
    views = list(dict.fromkeys(pairs + others))

    def group(members: Sequence[View]) -> Group:
        anchor, positive, *hard_negatives = map(views.index, members)
        return Group(anchor, positive, tuple(hard_negatives))

    return tuple(views), group(pairs), group(others)


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
    encode: Callable[[Pass, list[int], list[int], list[int]], jax.Array],
    noise: Callable[[int, tuple[int, ...]], jax.Array],
) -> Float[Array, "V B D"]:
    """(V, B, D) embeddings of the views; an encoding that several views need is done once.

    Args:
      views: V of them.
      encode: encode(pass, columns, masks, changes) -> (P, B, D), P columns under as many masks and changes, by their
        numbers, which do not count in a pass without masks or without a change.
      noise: noise(number, (B, D)), which is added to a noisy view.
    """
    passes: dict[Pass, dict[tuple[int, int, int], None]] = {}
    for view in views:
        for draw in view.draws:
            passes.setdefault(view.encoded_in, {})[draw] = None
    encoded: dict[tuple[Pass, tuple[int, int, int]], jax.Array] = {}
    for each, wanted in passes.items():
        columns, masks, changes = (list(part) for part in zip(*wanted, strict=True))
        embeddings = encode(each, columns, masks, changes)
        encoded |= {(each, key): embedding for key, embedding in zip(wanted, embeddings, strict=True)}

    def finish(view: View) -> jax.Array:
        parts = [encoded[view.encoded_in, draw] for draw in view.draws]
        embedding = parts[0] if len(parts) == 1 else jnp.mean(jnp.stack(parts), axis=0)
        return embedding if view.noise is None else embedding + noise(view.noise, embedding.shape)

    return jnp.stack([finish(view) for view in views])
