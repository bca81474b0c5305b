"""Everything that embeddings depend on, equal within an index and for its queries; its form in index.json."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from simcse_jax.errors import UserError
from simcse_jax.host.storage import Folder, other_format
from simcse_jax.index.candidates import CODES
from simcse_jax.vectors.quantization import Ranges, checked_ranges

FORMAT = 2  # of index.json
DAMAGED = "{}: damaged; build the index again"


class ModelIdentity(NamedTuple):
    """Everything that an index's embeddings depend on."""

    name: str  # for messages
    pooler: str
    head: bool
    dimension: int
    sha256: str  # of the parameters
    dtype: str  # of the encoder's products
    similarity: str  # how embeddings are compared
    prompt: str  # before each sentence of the index


def read_identity(content: Any, damaged: str) -> ModelIdentity:
    """The identity in an index.json or a file of embeddings; a `UserError` with the message `damaged` without one."""
    try:
        maker = ModelIdentity(**content)
    except TypeError:
        raise UserError(damaged) from None
    if not all(type(value) is kind for value, kind in zip(maker, ModelIdentity.__annotations__.values(), strict=True)):
        raise UserError(damaged)
    return maker


def precision_content(precision: str, ranges: Ranges | None) -> dict[str, Any]:
    """The format and precision of an index, and the ranges of int8, as its index.json has them."""
    content = {"format": FORMAT, "precision": precision}
    return content if ranges is None else {**content, "ranges": ranges.tolist()}


def read_precision(content: Mapping[str, Any], dimension: int, path: Folder) -> tuple[str, Ranges | None]:
    """Reads `precision_content` back from the index.json at `path`."""
    if content.get("format") != FORMAT:
        raise other_format(path, content, "build the index again")
    precision, ranges = content.get("precision"), content.get("ranges")
    if precision not in ("float32", *CODES):
        raise UserError(DAMAGED.format(path))
    return precision, None if ranges is None else checked_ranges(ranges, dimension, str(path))


def check_queries(maker: ModelIdentity, model: ModelIdentity) -> None:
    """Refuses a model for queries that no longer pools as it did for the index; does not compare prompts."""
    pooled = maker._replace(name=model.name, pooler=model.pooler, head=model.head, dimension=model.dimension)
    check_maker("the index", maker, pooled, "set the model's fields back, or build another")


def check_maker(
    folder: Folder | str,
    maker: ModelIdentity,
    model: ModelIdentity,
    cure: str = "load it with that model, or build another",
) -> None:
    """Refuses an index that was made by another model; the message ends in `cure`."""
    differing = [field for field in maker._fields if field != "name" and getattr(maker, field) != getattr(model, field)]
    if differing:
        values = {field: f"{getattr(maker, field)!r:.60}, not {getattr(model, field)!r:.60}" for field in differing}
        values |= {"sha256": "others, or other settings"} if "sha256" in differing else {}
        what = "; ".join(f"{field.replace('sha256', 'weights')} {value}" for field, value in values.items())
        raise UserError(f"{folder}: an index of {maker.name}, not of {model.name} ({what}); {cure}")
