"""Parameters in parts: those of a layer become whole when it computes, and are dropped after.

Layers that differ in their values alone are computed in a loop: a program then has one layer, however many there are,
and never has two of them whole. The backward pass gathers each layer, and computes it, again.
"""

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, Int

Module = TypeVar("Module", bound=nnx.Module)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Part:
    """A device's part of a parameter, in place of the whole array. `sent` is rounded, without gradient."""

    sent: Any  # arrays, or what JAX puts in their places
    part: Any
    placement: Any = dataclasses.field(metadata={"static": True})  # a `training.gathering.Placement`


def is_part(value: Any) -> bool:
    """Whether something that stands in the place of an array is in parts."""
    return isinstance(value, Part)


def in_parts(module: nnx.Module) -> bool:
    """Whether a module has parameters in parts."""
    return any(map(is_part, jax.tree.leaves(nnx.state(module, nnx.Param), is_leaf=is_part)))


def whole(tree: Any) -> Any:
    """The same parameters without parts; one that nothing reads then costs nothing."""
    return jax.tree.map(lambda x: x.placement.gather(x.sent, x.part) if is_part(x) else x, tree, is_leaf=is_part)


def gathered(layer: Module) -> Module:
    """The layer with whole parameters."""
    graph, state = nnx.split(layer)
    return nnx.merge(graph, whole(state))


def alike(layers: Sequence[nnx.Module], kinds: Sequence[Hashable]) -> list[range]:
    """Runs of consecutive layers that differ in nothing but the values of their parameters.

    Layers that share their parameters are the same object; `kinds` are what else makes them differ.
    """
    described: list[Any] = []
    runs: list[range] = []
    for number, (layer, kind) in enumerate(zip(layers, kinds, strict=True)):
        graph, state = nnx.split(layer)
        described.append((graph, jax.tree.structure(state), [x.shape for x in jax.tree.leaves(state)], kind))
        if number and described[-1] == described[-2] and all(layer is not layers[other] for other in runs[-1]):
            runs[-1] = range(runs[-1].start, number + 1)
        else:
            runs.append(range(number, number + 1))
    return runs


def in_a_loop(
    layers: Sequence[nnx.Module],
    first: int,
    compute: Callable[[Int[Array, ""], Any, Float[Array, "..."]], Float[Array, "..."]],
    hidden: Float[Array, "..."],
    kept: Sequence[str],
) -> Float[Array, "L ..."]:
    """Runs L layers that are `alike` in a loop; returns the result of each, from that of the one before.

    `first` is the first one's number, compute(number, layer, hidden) computes a layer that is whole, and `kept` are the
    names of results within a layer that are not computed again.
    """
    graph, _ = nnx.split(layers[0])
    states = [nnx.split(layer)[1] for layer in layers]

    def turn(hidden: Float[Array, "..."], numbered_state: Any) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        number, state = numbered_state
        hidden = compute(number, nnx.merge(graph, whole(state)), hidden)
        return hidden, hidden

    policy = jax.checkpoint_policies.save_only_these_names(*kept)
    turn = jax.checkpoint(turn, policy=policy, prevent_cse=False)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    return jax.lax.scan(turn, hidden, (jnp.arange(first, first + len(layers)), stacked))[1]
