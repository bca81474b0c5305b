"""Arguments of `SimCSE`'s methods: checks, embeddings of any kind, and the names that other packages use."""

import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ParamSpec, TypedDict, TypeVar, get_args, get_type_hints

import numpy as np
from numpy.typing import ArrayLike

from simcse_jax.choices import POOLERS, pooler_of
from simcse_jax.data.sentences import one_column
from simcse_jax.errors import UserError, broken, nearest
from simcse_jax.vectors.quantization import Precision, check_no_codes

P = ParamSpec("P")
R = TypeVar("R")


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

# Arguments of sentence-transformers and of the SimCSE authors' package, and ours of the same meaning.
OURS = {
    "normalize_embeddings": "normalize_to_unit",
    "normalize": "normalize_to_unit",
    "show_progress": "show_progress_bar",
    "max_seq_length": "max_length",
    "sentences_or_file_path": "sentences_or_file",
    "model_name_or_path": "name",
    "torch_dtype": "dtype",
    "model_kwargs": "dtype",
    "inputs": "sentences",
    "sentence": "sentences",
}
# The methods that ours belong to, for the advice in others.
METHODS = {
    **dict.fromkeys(("normalize_to_unit", "max_length", "sentences", "prompt", "prompt_name"), "encode"),
    **dict.fromkeys(("name", "dtype", "num_layers"), "SimCSE(…)"),
    **dict.fromkeys(("truncate_dim", "batch_size", "pooler"), "SimCSE(…) and of encode"),
    **dict.fromkeys(("precision", "ranges"), "encode and build_index"),
    "show_progress_bar": "encode, build_index and add_to_index",
    "sentences_or_file": "build_index and add_to_index",
    "with_tokens": "encode_tokens",
}
# Others of these packages, with the advice to give.
ARRAYS = "embeddings are NumPy arrays; torch.from_numpy and jax.numpy.asarray convert them"
DEVICES = "all local devices are used; JAX_PLATFORMS or CUDA_VISIBLE_DEVICES choose others"
PROMPTS = "the model has attributes of this name; set them, or give encode a prompt="
FAISS = 'use approximate=True, backend="faiss" of search'
ELSEWHERE = {
    **dict.fromkeys(("convert_to_numpy", "convert_to_tensor", "return_numpy"), ARRAYS),
    **dict.fromkeys(("device", "pool", "chunk_size"), DEVICES),
    **dict.fromkeys(("prompts", "default_prompt_name"), PROMPTS),
    **dict.fromkeys(("faiss_fast", "num_cells", "num_cells_in_search"), FAISS),
    "keepdim": "a list of one sentence gives a matrix of one row",
    "output_value": "encode_tokens gives the embeddings of tokens",
    "similarity_fn_name": "the model has an attribute of this name; set it",
    "use_faiss": 'use backend="faiss" of search',
    "revision": 'write it after the name: SimCSE("OWNER/NAME@REVISION")',
    "trust_remote_code": "no code from the hub is run",
}
PAIR = ("queries", "keys", "embeddings1", "embeddings2")  # elsewhere, of a method with arguments a and b


def advice(name: str, parameters: Sequence[str]) -> str:
    """Advice about an unknown argument `name` of a method with these parameters."""
    our_name = OURS.get(name, name)
    if our_name in parameters:
        return f"use {our_name}="
    if our_name in METHODS:
        return f"{'it' if our_name == name else f'{our_name}='} is an argument of {METHODS[our_name]}"
    if name == "queries" and "sentences" in parameters:
        return "use sentences="
    if name in PAIR and "a" in parameters:
        return "the arguments are a and b"
    return ELSEWHERE.get(name) or f"the nearest one is {nearest(name, parameters)}="


def names_ours(method: Callable[P, R]) -> Callable[P, R]:
    """Makes a method's error for an unknown argument name the right one."""
    parameters = _names(method)

    @functools.wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in parameters:
                where = ".".join([*(type(self).__name__ for self in args[:1]), method.__name__])
                where = where.removesuffix(".__init__")
                raise TypeError(f"{where} has no argument {name}=; {advice(name, parameters)}")
        return method(*args, **kwargs)

    return checked


def _names(method: Callable[..., Any]) -> list[str]:
    """The names of a method's arguments, with the keys of the `TypedDict` that its `**options` are."""
    names: list[str] = []
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            names += get_type_hints(get_args(parameter.annotation)[0])
        elif name != "self":
            names.append(name)
    return names


def check_options(
    pooler: str | None,
    batch_size: int | None,
    max_length: int | None,
    most: int = 0,
    normalize_to_unit: bool | None = None,
) -> None:
    """Checks the options of an encoding that are not None; `most` is the model's own maximum length."""
    if pooler is not None and (not isinstance(pooler, str) or pooler_of(pooler) not in POOLERS):
        raise UserError(f"pooler {pooler!r:.60} is not one of {', '.join(POOLERS)}")
    if batch_size is not None and not is_whole(batch_size, 1):
        raise UserError(f"batch_size {batch_size!r:.60}: must be a whole number, 1 or more")
    if max_length is not None and not is_whole(max_length, 3, most):
        raise UserError(f"max_length {max_length!r:.60}: must be a whole number from 3 to {most}, the model's own")
    if not isinstance(normalize_to_unit, bool | np.bool_ | None):
        raise UserError(f"normalize_to_unit {normalize_to_unit!r:.60}: must be True, False or None")


def is_whole(value: Any, least: int, most: float = float("inf")) -> bool:
    """Whether a value is a whole number from `least` to `most`; True and False are none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(least <= value <= most)


def check_path(name: Any, kind: str) -> None:
    """Refuses what is not the name of a file or a folder; an empty one would be the current folder."""
    if not isinstance(name, str | os.PathLike) or not os.fspath(name).strip():
        raise UserError(f"{kind} {name!r:.60}: not a name")


def check_truncation(size: int | None, dimension: int, name: str = "truncate_dim") -> None:
    """Refuses a `truncate_dim`, or the argument `name`, that is not a possible number of elements."""
    if size is None:
        return
    if not is_whole(size, 1, dimension):
        raise UserError(f"{name} {size!r:.60}: must be a whole number from 1 to {dimension}, the full size")


def resolve_prompt(prompts: Mapping[str, str], default: str | None, prompt: str | None, name: str | None) -> str:
    """The text to put before each sentence: the prompt, or that of the name, or that of the default name, or none."""
    if prompt is not None and name is not None:
        raise UserError(f"prompt={prompt!r:.60} and prompt_name={name!r:.60}: give one of them")
    if prompt is not None:
        if not isinstance(prompt, str):
            raise UserError(f"prompt={prompt!r:.60}: not a string")
        if prompt.encode(errors="ignore").decode() != prompt:
            raise UserError(f"prompt={prompt!r:.60}: {broken(prompt)}")
        return prompt
    name = default if name is None else name
    if name is not None and (not isinstance(name, str) or name not in prompts):
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
      A NumPy array, (D,) or (N, D) float32; or what was given, an iterator as a list, for `check_sentences`.
    """
    if isinstance(value, str | bytes) or not (_is_array(value) or hasattr(value, "__iter__")):
        return value
    if _is_array(value) and (array := _to_numpy(value)).dtype.kind != "O":
        if array.dtype.kind in "cb":
            raise UserError(f"embeddings of type {array.dtype}: give real numbers")
        check_no_codes(array)
        if array.dtype.kind not in "iuf":
            return value
    else:
        items = list(one_column(value))
        if not items or (first := _numbers(items[0])) is None:
            return items
        rows = [first]
        for number, item in enumerate(items[1:], 1):
            if (row := _numbers(item)) is None:
                raise UserError(f"item {number} is {item!r:.60}, item 0 is {items[0]!r:.60}; give one kind alone")
            if row.shape != first.shape:
                raise UserError(f"embedding {number} has shape {row.shape}, embedding 0 {first.shape}")
            rows.append(row)
        array = np.array(rows)
    array = array.astype(np.float32, copy=False)
    if array.ndim not in (1, 2) or array.shape[-1] != dimension:
        raise UserError(f"embeddings of shape {array.shape}; this model's are ({dimension},) or (N, {dimension})")
    if not np.isfinite(array).all():
        row_name = f"embedding {int(np.argwhere(~np.isfinite(array))[0, 0])}" if array.ndim == 2 else "the embedding"
        raise UserError(f"{row_name} has a NaN or infinite element")
    return array


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") or hasattr(value, "detach")


def _numbers(item: Any) -> np.ndarray | None:
    """A number or several as an array; None for anything else."""
    if isinstance(item, str | bytes):
        return None
    try:
        array = _to_numpy(item)
    except (TypeError, ValueError):  # a list of lists that differ in length
        return None
    if array.dtype.kind in "cb":
        raise UserError(f"an embedding of type {array.dtype}: give real numbers")
    check_no_codes(array)
    return array if array.dtype.kind in "iuf" else None


def _to_numpy(value: Any) -> np.ndarray:
    """An array. A PyTorch tensor may be on a GPU, need a gradient, or be of a type that NumPy lacks."""
    if hasattr(value, "detach"):
        if str(value.layout) != "torch.strided":
            raise UserError(f"a tensor of layout {value.layout}: give a dense one (to_dense())")
        value = value.detach().cpu()
        value = value.float().numpy() if value.is_floating_point() else value.numpy()
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array  # JAX's
