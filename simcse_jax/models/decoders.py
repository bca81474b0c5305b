"""What the configs of decoders say: heads, windows, rotations and biases. They are embedders by their last token.

Qwen2 and Qwen3, Llama, Mistral, Gemma 3; EmbeddingGemma is a Gemma 3 that reads a text in both directions.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from simcse_jax.errors import UserError
from simcse_jax.models.model_types import (
    GLOBAL,
    LOCAL,
    ModelType,
    Read,
    RotaryScaling,
    base_of_rotation,
    flag,
    local_layers,
    refuse,
    rotations,
    whole,
)

# With other values of these fields transformers, or the model's own code, computes something else.
ONLY: dict[str, tuple[Any, ...]] = {
    "partial_rotary_factor": (1.0, None),
    "auto_map": (None,),
}
# By kinds of scaling, their further fields and defaults; None: a file must state it.
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"factor": None},
    "llama3": {"factor": None, "low_freq_factor": None, "high_freq_factor": None},
    "yarn": {"factor": None, "beta_fast": 32, "beta_slow": 1, "attention_factor": 0, "truncate": True},
}
LENGTH = "original_max_position_embeddings"
GEMMA_BOTH_WAYS = "use_bidirectional_attention"


def qwen(config: dict[str, Any], kind: ModelType, where: str) -> Read:
    """Qwen2 (arXiv:2407.10671) and Qwen3 (arXiv:2505.09388); the last layers have windows if a file asks for it."""
    parts = _heads(config, kind, where) | _one_rotation(config, where)
    if config.get("use_sliding_window") and config.get("sliding_window", 4096) is not None:

        def is_local(index: int) -> bool:
            stated = config.get("max_window_layers", 28)
            return index >= (0 if stated == 0 else whole(config, "max_window_layers", 28, where))

        parts |= _windows(config, parts, is_local, where)
    return config, kind._replace(parts=parts)


def llama(config: dict[str, Any], kind: ModelType, where: str) -> Read:
    """Llama (arXiv:2307.09288, 2407.21783): every layer sees the whole text."""
    return config, kind._replace(parts=_heads(config, kind, where) | _one_rotation(config, where))


def mistral(config: dict[str, Any], kind: ModelType, where: str) -> Read:
    """Mistral (arXiv:2310.06825), whose layers all have windows, unless `sliding_window` is null."""
    parts = _heads(config, kind, where) | _one_rotation(config, where)
    if config.get("sliding_window", 4096) is not None:
        parts |= _windows({**config, "layer_types": None}, parts, lambda _: True, where)  # which are not read
    return config, kind._replace(parts=parts)


def gemma3(config: dict[str, Any], kind: ModelType, where: str) -> Read:
    """Gemma 3 (arXiv:2503.19786): local and global layers rotate by bases of their own. A text that is read in both
    directions, as by EmbeddingGemma (arXiv:2509.20354), has windows to both sides."""
    parts = _heads(config, kind, where)
    only = {"query_pre_attn_scalar": (parts["head_dim"],), "attn_logit_softcapping": (None,), "is_causal": (True, None)}
    refuse({"query_pre_attn_scalar": 256} | config, only, where)  # transformers' default
    ropes = rotations(config, where)
    config = {field: value for field, value in config.items() if field != LENGTH}  # not read where layers differ
    base, scaling = _rotation(config, f"rope_parameters.{GLOBAL}", ropes.get(GLOBAL), ("rope_theta", 1e6), where)
    rest = {field: value for field, value in config.items() if field != "rope_scaling"}  # the global layers'
    local, other = _rotation(rest, f"rope_parameters.{LOCAL}", ropes.get(LOCAL), ("rope_local_base_freq", 1e4), where)
    if other is not None:
        raise UserError(f"{where}: rope_parameters.{LOCAL} has a scaling, which is supported in global layers alone")
    parts |= {"rotary_base": base, "local_rotary_base": local, "rotary_scaling": scaling}
    parts["causal"] = config.get(GEMMA_BOTH_WAYS) is None or not flag(config, GEMMA_BOTH_WAYS, where)
    parts["embedding_scale"] = math.sqrt(whole(config, "hidden_size", None, where))
    pattern = "sliding_window_pattern"
    parts |= _windows(config, parts, lambda index: (index + 1) % whole(config, pattern, 6, where), where)
    return config, kind._replace(parts=parts)


READERS = {"qwen2": qwen, "qwen3": qwen, "llama": llama, "mistral": mistral, "gemma3_text": gemma3}


def both_ways(model_type: str) -> dict[str, bool]:
    """What a decoder's `config.json` says, for transformers too, if it reads a text in both directions."""
    return {GEMMA_BOTH_WAYS: True} if model_type == "gemma3_text" else {"is_causal": False}


def _heads(config: Mapping[str, Any], kind: ModelType, where: str) -> dict[str, Any]:
    """The parts of its model type, with the heads and the biases."""
    refuse(config, ONLY, where)
    heads = whole(config, "num_attention_heads", None, where)
    keys = heads if config.get("num_key_value_heads") is None else whole(config, "num_key_value_heads", None, where)
    stated = config.get("head_dim") or kind.defaults.get("head_dim")
    if stated is None:
        stated = whole(config, "hidden_size", None, where) // heads
    head = whole({"head_dim": stated}, "head_dim", None, where)
    if head % 2:
        raise UserError(f"{where}: head_dim is {head}; rotary positions need an even number")
    parts = {**kind.parts, "head_dim": head, "key_heads": keys}
    parts["causal"] = config.get("is_causal") is None or flag(config, "is_causal", where)
    parts["tied_head"] = flag({**kind.defaults, **config}, "tie_word_embeddings", where)
    return parts | {name: flag(config, field, where) for name, field in kind.biases.items()}


def _one_rotation(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The rotation of all layers."""
    base, scaling = _rotation(config, "rope_parameters", config.get("rope_parameters"), ("rope_theta", 1e4), where)
    return {"rotary_base": base, "rotary_scaling": scaling}


def _windows(
    config: Mapping[str, Any], parts: Mapping[str, Any], is_local: Callable[[int], object], where: str
) -> dict[str, Any]:
    """The layers whose attention sees a window, and the most positions from a query to a key in it.

    A window of w tokens ends with the query's own. One to both sides has w of them before it and after it, Gemma's
    w / 2, as in transformers.
    """
    window = whole(config, "sliding_window", 4096, where)
    window = window - 1 if parts["causal"] else window // (2 if config.get(GEMMA_BOTH_WAYS) else 1)
    return {"local_layers": local_layers(config, is_local, where), "window": window}


def _rotation(
    config: Mapping[str, Any], name: str, stated: Any, older: tuple[str, float], where: str
) -> tuple[float, RotaryScaling | None]:
    """The base of rotary positions and how their frequencies are scaled, from the newer or the older fields."""
    if config.get("rope_scaling") is not None:  # transformers takes the older field where a file has both
        name, stated = "rope_scaling", config["rope_scaling"]
    if not isinstance(stated, dict):
        return base_of_rotation(stated, name, config, *older, where), None
    kind = stated.get("rope_type", stated.get("type", "default"))
    if kind != "default" and kind not in [*SCALINGS]:  # it may be a list
        raise UserError(f"{where}: {name}.rope_type is {kind!r:.60}, not one of default, {', '.join(SCALINGS)}")
    of_scaling = {} if kind == "default" else {LENGTH: None} | SCALINGS[kind]
    usual = {field: value for field, value in stated.items() if field not in {"rope_type", "type", *of_scaling}}
    base = base_of_rotation(usual, name, config, *older, where)
    return base, _scaling(config, kind, stated, name, where) if of_scaling else None


def _scaling(config: Mapping[str, Any], kind: str, stated: Mapping[str, Any], name: str, where: str) -> RotaryScaling:
    """How frequencies are scaled, by the fields of this kind; `name` is that of the dictionary `stated`."""
    asked = {f"{name}.{field}": value for field, value in stated.items()}
    numbers = {
        field: _number(asked, f"{name}.{field}", default, where)
        for field, default in SCALINGS[kind].items()
        if field != "truncate"
    }
    factor = numbers["factor"]
    most = whole(config, "max_position_embeddings", None, where)
    if config.get(LENGTH) is not None:  # transformers takes this one where a file has both
        length = whole(config, LENGTH, None, where)
    else:
        length = whole(asked | {f"{name}.{LENGTH}": stated.get(LENGTH, most)}, f"{name}.{LENGTH}", None, where)
    low, high = (numbers.get(field, 0.0) for field in ("low_freq_factor", "high_freq_factor"))
    attention, rounded = 1.0, True
    if kind == "yarn":
        low, high = numbers["beta_slow"], numbers["beta_fast"]
        attention = numbers["attention_factor"] or 0.1 * math.log(factor) + 1.0
        rounded = flag({"truncate": True, **stated}, "truncate", where)
    return RotaryScaling(kind, factor, length, low, high, attention, rounded)


def _number(fields: Mapping[str, Any], field: str, default: float | None, where: str) -> float:
    value: Any = fields.get(field)
    value = default if value is None else value
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise UserError(f"{where}: {field} is {value!r:.60}, not a positive number")
    return float(value)
