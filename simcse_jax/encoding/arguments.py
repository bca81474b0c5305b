"""Arguments of `SimCSE`'s methods: checks, prompts, and embeddings of any kind."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from simcse_jax.choices import POOLERS, pooler_of
from simcse_jax.data.sentences import one_column
from simcse_jax.errors import UserError
from simcse_jax.vectors.quantization import Precision, check_no_codes


class EncodeOptions(TypedDict, total=False):
    """The options of `SimCSE.encode` that other methods share; None is the model's own value."""

    batch_size: int | None
    normalize_to_unit: bool | None
    max_length: int | None
    pooler: str | None
    prompt: str | None
    prompt_name: str | None
    truncate_dim: int | None


class AllOptions(EncodeOptions, total=False):
    """All of them."""

    precision: Precision
    ranges: ArrayLike | str | Path | None
    show_progress_bar: bool


Options = TypeVar("Options", EncodeOptions, AllOptions)


def check_pooler(pooler: str | None) -> None:
    """Refuses a name that is not a pooler's; None is the model's own."""
    if pooler is not None and pooler_of(pooler) not in POOLERS:
        raise UserError(f"pooler {pooler!r:.60} is not one of {', '.join(POOLERS)}")


def check_max_length(value: int, most: int) -> None:
    """Refuses a length for which the model, whose own is `most`, has no positions."""
    if not 3 <= value <= most:
        raise UserError(f"max_length {value!r:.60}: must be a whole number from 3 to {most}, the model's own")


def check_truncation(size: int | None, dimension: int, name: str = "truncate_dim") -> None:
    """Refuses a `truncate_dim`, or the argument `name`, that is not a possible number of elements."""
    if size is not None and not 1 <= size <= dimension:
        raise UserError(f"{name} {size!r:.60}: must be a whole number from 1 to {dimension}, the full size")


def resolve_prompt(prompts: Mapping[str, str], default: str | None, prompt: str | None, name: str | None) -> str:
    """The text to put before each sentence: the prompt, or that of the name, or that of the default name, or none."""
    if prompt is not None and name is not None:
        raise UserError(f"prompt={prompt!r:.60} and prompt_name={name!r:.60}: give one of them")
    if prompt is not None:
        return prompt
    name = default if name is None else name
    if name is not None and name not in prompts:
        raise UserError(f"prompt_name={name!r:.60}: the model has the prompts {', '.join(prompts)}")
    return "" if name is None else prompts[name]


def with_prompt_of(options: Options, prompts: Mapping[str, str], *names: str) -> Options:
    """The options with the first of these names that the model has a prompt of, unless they name a prompt already."""
    if options.get("prompt") is not None or options.get("prompt_name") is not None:
        return options
    return options | {"prompt_name": next((name for name in names if name in prompts), None)}


def embeddings_or_sentences(value: Any, dimension: int) -> Any:
    """Distinguishes embeddings from sentences.

    Args:
      value: sentences; or embeddings: a vector or a matrix, as a NumPy or JAX array, a
        PyTorch tensor, or a sequence of numbers, of vectors or of lists of numbers.

    Returns:
      A NumPy array, (D,) or (N, D) float32; or what was given, an iterator or array as a list, for `check_sentences`.
    """
    if isinstance(value, str | bytes) or not (_is_array(value) or hasattr(value, "__iter__")):
        return value
    sentences = value
    if not _is_array(value) or (array := _to_numpy(value)).dtype == object:
        sentences = list(one_column(value))
        if not sentences or isinstance(sentences[0], str | bytes):
            return sentences
        try:
            array = np.stack([_to_numpy(item) for item in sentences])
        except ValueError:  # of different shapes
            return sentences
    check_no_codes(array)
    if array.dtype.kind not in "iuf":
        return array.tolist() if _is_array(value) else sentences
    if array.ndim not in (1, 2) or array.shape[-1] != dimension:
        raise UserError(f"embeddings of shape {array.shape}; this model's are ({dimension},) or (N, {dimension})")
    array = array.astype(np.float32, copy=False)
    if not np.isfinite(array).all():
        raise UserError("an embedding has a NaN or infinite element")
    return array


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") or hasattr(value, "detach")


def _to_numpy(value: Any) -> np.ndarray:
    """An array. A PyTorch tensor may be on a GPU, need a gradient, or be of a type that NumPy lacks."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float().numpy() if value.is_floating_point() else value.numpy()
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array  # JAX's
