"""The fields of Matryoshka embeddings, whose first elements are embeddings too."""

from typing import Any

from simcse_jax.config.sections import Config
from simcse_jax.errors import UserError
from simcse_jax.field import field, listed, number
from simcse_jax.objectives.discarded import check_kept
from simcse_jax.objectives.registry import needing

MATRYOSHKA_SECTIONS = {"matryoshka": "The objectives at several sizes of the embeddings (Kusupati et al. 2022)."}


def read_dimensions(parts: tuple[str, ...]) -> tuple[int, ...]:
    """The sizes in `matryoshka.dimensions`, the largest first.

    Raises:
      ValueError: when one is no whole number from 1, or is there twice.
    """
    sizes = tuple(int(part) for part in parts)
    if any(size < 1 for size in sizes) or len(set(sizes)) < len(sizes):
        raise ValueError(f"{sizes} are no sizes")
    return tuple(sorted(sizes, reverse=True))


def read_weights(parts: tuple[str, ...]) -> tuple[float, ...]:
    """The weights in `matryoshka.weights`, in its order.

    Raises:
      ValueError: when one is no number from 0 to 1e30, or none is above 1e-30.
    """
    weights = tuple(map(float, parts))
    if not all(0 <= weight <= 1e30 for weight in weights) or (weights and max(weights) <= 1e-30):
        raise ValueError(f"{weights} are no weights")
    return weights


def _seen(config: Any) -> bool:
    return bool(needing(config.objective, "truncatable"))


MATRYOSHKA_FIELDS = {
    "matryoshka.dimensions": field(
        (),
        "Objectives of embeddings are summed over embeddings of these numbers of elements, e.g. 768,256,64; empty: "
        "embeddings as they are.",
        listed("empty, or whole numbers from 1, each once", read_dimensions),
        only=_seen,
    ),
    "matryoshka.weights": number(
        (),
        "The weight of the objectives at each of them, in the same order; empty: 1.",
        listed("empty, or numbers of 0 or more, at most 1e30, one of them above 1e-30", read_weights),
        only=lambda config: config.matryoshka.dimensions and _seen(config),
    ),
}


def sizes_of(config: Config) -> tuple[int, ...]:
    """The sizes, the largest first; none without `matryoshka.dimensions`."""
    return read_dimensions(config.matryoshka.dimensions)


def weights_of(config: Config) -> list[float]:
    """The weights of `sizes_of`, in its order."""
    dimensions, weights = config.matryoshka.dimensions, config.matryoshka.weights
    by_size = zip(map(int, dimensions), read_weights(weights) or [1.0] * len(dimensions), strict=True)
    return [weight for _, weight in sorted(by_size, reverse=True)]


def check_matryoshka(config: Config) -> None:
    """Refuses weights of other sizes, and objectives that cannot be taken at several sizes."""
    dimensions, weights, projector = config.matryoshka.dimensions, config.matryoshka.weights, config.projector
    if weights and len(weights) != len(dimensions):
        raise UserError(
            f"config.matryoshka.weights={','.join(weights)}: {len(weights)} weights for {len(dimensions)} of "
            "matryoshka.dimensions; give one for each, or none"
        )
    if not dimensions:
        return
    check_kept(config, "config.matryoshka.dimensions", "the first elements are trained")
    truncated = [objective.name for objective in needing(config.objective, "truncatable")]
    for name in projector.objectives if projector.widths else ():
        if name in truncated:
            raise UserError(
                f"config.matryoshka.dimensions: objective.{name} sees projected embeddings, whose elements are not "
                "those of the embedding; leave it empty, or take the objective out of projector.objectives"
            )
