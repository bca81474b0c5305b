"""What embeddings depend on: those of one index, or of an index and its queries, must have it in common."""

from typing import NamedTuple

from simcse_jax.errors import UserError
from simcse_jax.host.storage import Folder


class ModelIdentity(NamedTuple):
    """What an index's embeddings depend on, and the model's name, for messages."""

    name: str
    pooler: str
    head: bool
    dimension: int
    sha256: str  # of the parameters
    dtype: str = "float32"  # of the encoder's products; the defaults are for an index that does not say
    similarity: str = "cosine"  # how embeddings are compared
    prompt: str = ""  # before each sentence of the index


def is_identity(maker: ModelIdentity) -> bool:
    """Whether each field has its type."""
    return all(type(value) is kind for value, kind in zip(maker, ModelIdentity.__annotations__.values(), strict=True))


def check_queries(maker: ModelIdentity, model: ModelIdentity) -> None:
    """Raises a `UserError` when a model that embeds queries no longer pools as the one that embedded the index.

    What queries may have of their own, such as a prompt, is not compared.
    """
    own = maker._replace(name=model.name, pooler=model.pooler, head=model.head, dimension=model.dimension)
    check_maker("the index", maker, own, "set the model's fields back, or build another")


def check_maker(
    folder: Folder | str,
    maker: ModelIdentity,
    model: ModelIdentity,
    cure: str = "load it with that model, or build another",
) -> None:
    """Raises a `UserError`, which ends in `cure`, when `folder` is an index of another model than `model`."""
    if maker._replace(name=model.name) == model:
        return

    def describe(identity: ModelIdentity) -> str:
        head, dtype = " with head" if identity.head else "", "" if maker.dtype == model.dtype else f", {identity.dtype}"
        more = "" if maker.similarity == model.similarity else f", {identity.similarity}"
        more += "" if maker.prompt == model.prompt else f", prompt {identity.prompt!r}"
        return f"{identity.name} (pooler {identity.pooler}{head}{dtype}{more})"

    weights = ""
    if describe(maker) == describe(model):
        same_width = maker.dimension == model.dimension
        weights = " with other weights or settings" if same_width else f", {maker.dimension} elements wide"
    raise UserError(f"{folder}: an index of {describe(maker)}{weights}, not of {describe(model)}; {cure}")
