"""The model types of Hugging Face: the parts that each has, and the fields of its `config.json`."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from simcse_jax.errors import UserError
from simcse_jax.models.relative_positions import BUCKETS

WORD_VECTORS = "glove"  # the model type of an average of word vectors, which has no layers
# Positions: where the rows of a table of them begin, or no table, but rotations in attention.
FROM_ZERO, AFTER_PADDING, ROTARY = "from_zero", "after_padding", "rotary"
MOST_LAYERS = 1 << 10
NONE: Mapping[str, Any] = MappingProxyType({})
GLOBAL, LOCAL = "full_attention", "sliding_attention"  # of `layer_types`
MOST_BASE, MOST_WINDOW = 10**12, 1 << 26
ONLY_DEFAULT: dict[str, tuple[Any, ...]] = {"rope_scaling": (None,), "partial_rotary_factor": (1.0, None)}
MODERNBERT_BIASES = {
    **dict.fromkeys(("attention_bias", "attention_output_bias"), "attention_bias"),
    "feed_forward_bias": "mlp_bias",
    "norm_bias": "norm_bias",
    "language_model_bias": "classifier_bias",
}
# Nomic's own layout, which their code on the hub reads; transformers writes the usual names.
NOMIC_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
}
GATED = {"swiglu": "silu", "geglu": "gelu"}  # of `activation_function`, and the activation before the gate
# With another value of these fields Nomic's code builds another network.
NOMIC_ONLY: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("prenorm", "use_rms_norm", "parallel_block", "causal", "rotary_emb_interleaved"), (False, None)),
    **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), (False,)),
    **dict.fromkeys(("num_experts", "moe_every_n_layers", "rotary_emb_scale_base"), (None, 0)),
    "rotary_emb_fraction": (1.0,),
}
# What an exported config keeps of this layout, in addition to the usual names.
NOMIC_KEPT = ("model_type", "vocab_size", "type_vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")


class RotaryScaling(NamedTuple):
    """How the frequencies of rotary positions differ from the usual ones (see `models.rotary.frequencies`)."""

    kind: str  # of `decoders.SCALINGS`
    factor: float  # s
    length: int = 0  # n
    low: float = 0.0
    high: float = 0.0
    attention: float = 1.0  # what cosines and sines are multiplied by
    rounded: bool = True


class ModelType(NamedTuple):
    """A line of `MODEL_TYPES`. All fields that are named here are those of `config.json`, except for `parts`."""

    parts: Mapping[str, Any] = NONE  # the fields of `EncoderConfig` that the model type decides
    sizes: tuple[str, ...] = ("type_vocab_size",)  # that such a model has in addition to those that all have
    names: Mapping[str, str] = NONE  # its own names of the usual fields
    defaults: Mapping[str, Any] = NONE  # those of transformers, where they differ from BERT's
    fixed: Mapping[str, Any] = NONE  # written in transformers' code; what the file says is not read
    only: Mapping[str, Any] = NONE  # what a field must be if it is there
    projects_always: bool = False  # also where the embeddings have the hidden size
    biases: Mapping[str, str] = NONE  # fields of `EncoderConfig` that say which biases there are, and its names of them


# RoBERTa's head of masked words always has the exact GELU.
ROBERTA = ModelType({"positions": AFTER_PADDING, "language_model_act": "gelu"}, defaults={"pad_token_id": 1})
DISTILBERT_NAMES = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}
MODERNBERT_NAMES = {"hidden_act": "hidden_activation", "layer_norm_eps": "norm_eps"}
# `READERS` have what their configs say of rotations, windows and biases.
GATED_ROTARY: Mapping[str, Any] = MappingProxyType({"positions": ROTARY, "gated": True})
NO_BIASES = dict.fromkeys(("attention_bias", "attention_output_bias", "feed_forward_bias"), False)
# RMSNorm before each part, no norm of the word embeddings.
_DECODER_PARTS = {"pre_norm": True, "rms_norm": True, "norm_bias": False, "embedding_norm": False}
_DECODER_PARTS |= {"causal": True, "guesses_next": True}
_ATTENTION_BIASES = dict.fromkeys(("attention_bias", "attention_output_bias"), "attention_bias")
DECODER = ModelType(
    {**GATED_ROTARY, **NO_BIASES, **_DECODER_PARTS},
    sizes=(),
    names={"layer_norm_eps": "rms_norm_eps"},
    defaults={"layer_norm_eps": 1e-6, "hidden_act": "silu"},
)
MODEL_TYPES = {
    "bert": ModelType(),
    "roberta": ROBERTA,
    "mpnet": ROBERTA._replace(
        parts={**ROBERTA.parts, "relative_bias": True},
        sizes=(),
        only={"pad_token_id": 1, "relative_attention_num_buckets": BUCKETS},  # transformers hard-codes both
    ),
    "distilbert": ModelType(
        {"drops_attention_output": False}, sizes=(), names=DISTILBERT_NAMES, fixed={"layer_norm_eps": 1e-12}
    ),
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "ernie": ModelType(sizes=("type_vocab_size", "task_type_vocab_size"), defaults={"task_type_vocab_size": 3}),
    "electra": ModelType(
        {"language_model_act": "gelu"}, sizes=("type_vocab_size", "embedding_size"), defaults={"embedding_size": 128}
    ),
    "albert": ModelType(
        {"drops_feed_forward_output": False},  # in transformers' code
        sizes=("type_vocab_size", "embedding_size", "num_hidden_groups"),
        defaults={"embedding_size": 128, "num_hidden_groups": 1, "hidden_act": "gelu_new"},
        only={"inner_group_num": 1},
        projects_always=True,
    ),
    "modernbert": ModelType(
        {**GATED_ROTARY, "pre_norm": True},
        sizes=(),
        names=MODERNBERT_NAMES,
        defaults={"layer_norm_eps": 1e-5, "pad_token_id": 50283},
        biases=MODERNBERT_BIASES,
    ),
    "nomic_bert": ModelType({**GATED_ROTARY, **NO_BIASES}, defaults={"hidden_act": "silu"}),
    # Decoders; `decoders.READERS` have their heads, windows and rotations.
    "qwen2": DECODER._replace(parts={**DECODER.parts, "attention_bias": True}),
    "qwen3": DECODER._replace(
        parts={**DECODER.parts, "query_key_norm": True},
        defaults={**DECODER.defaults, "head_dim": 128},
        biases=_ATTENTION_BIASES,
    ),
    "llama": DECODER._replace(biases={**_ATTENTION_BIASES, "feed_forward_bias": "mlp_bias"}),
    "mistral": DECODER,
    "gemma3_text": DECODER._replace(
        parts={**DECODER.parts, "query_key_norm": True, "result_norm": True, "norm_offset": 1.0},
        names={"layer_norm_eps": "rms_norm_eps", "hidden_act": "hidden_activation"},
        defaults={**DECODER.defaults, "hidden_act": "gelu_pytorch_tanh", "head_dim": 256, "tie_word_embeddings": True},
        biases=_ATTENTION_BIASES,
    ),
}


Read = tuple[dict[str, Any], ModelType]


def modernbert(config: dict[str, Any], kind: ModelType, where: str) -> Read:
    """ModernBERT (Warner et al. 2024, arXiv:2412.13663); older files have the period of global layers."""
    interval = "global_attn_every_n_layers"
    local = local_layers(config, lambda index: index % whole(config, interval, 3, where), where)
    refuse(config, ONLY_DEFAULT, where)
    ropes = rotations(config, where)
    rotary_base, local_rotary_base = (
        base_of_rotation(ropes.get(kind), f"rope_parameters.{kind}", config, older, default, where)
        for kind, older, default in ((GLOBAL, "global_rope_theta", 160000.0), (LOCAL, "local_rope_theta", 10000.0))
    )
    # transformers does not read the usual names of these.
    config = {field: x for field, x in config.items() if kind.names.get(field, field) in config}
    parts = dict(kind.parts) | {name: flag(config, field_name, where) for name, field_name in kind.biases.items()}
    parts |= {"rotary_base": rotary_base, "local_rotary_base": local_rotary_base}
    parts |= {"local_layers": local, "window": whole(config, "local_attention", 128, where) // 2}
    parts["language_model_act"] = config.get("classifier_activation", "gelu")
    return config, kind._replace(parts=parts)


def rotations(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The rotary positions of global and of local layers in a config file; {} where it has none."""
    ropes = config.get("rope_parameters") or {}
    if not isinstance(ropes, dict) or ropes.keys() - {GLOBAL, LOCAL}:
        raise UserError(f"{where}: rope_parameters is {ropes!r:.60}; it must have {GLOBAL} and {LOCAL} alone")
    return ropes


def nomic_bert(config: dict[str, Any], kind: ModelType, where: str) -> Read:
    """NomicBERT (Nussbaum et al. 2024, arXiv:2402.01613), in the layout of transformers or in that of Nomic's own code.

    Some files have the fields of both; the tokens that a sentence may have are then those of Nomic's `n_positions`.
    Nomic's `rotary_scaling_factor` changes the rotation of a batch with more than `max_trained_positions` tokens; such
    a model takes no more than these.
    """
    refuse(config, ONLY_DEFAULT | NOMIC_ONLY, where)
    older, default = "rope_theta", 1000.0
    if is_nomic_s(config):
        older, default = "rotary_emb_base", 10000.0
        config, kind = _usual(config, where), kind._replace(names=NOMIC_NAMES)
    base = base_of_rotation(config.get("rope_parameters"), "rope_parameters", config, older, default, where)
    return config, kind._replace(parts={**kind.parts, "rotary_base": base})


def is_nomic_s(config: Mapping[str, Any]) -> bool:
    """Whether a config of NomicBERT has the layout of Nomic's own code."""
    return "n_embd" in config


def for_transformers(config: dict[str, Any], num_layers: int, where: str) -> dict[str, Any]:
    """The config of the first layers of a rotary encoder, in the layout of transformers."""
    if is_nomic_s(config):
        usual, kept = _usual(config, where), (*NOMIC_KEPT, *NOMIC_NAMES, "hidden_act")
        stated = config.get("rope_parameters") or {}
        base = stated.get("rope_theta", config.get("rotary_emb_base", 10000.0))
        rope = {"rope_theta": float(base), "rope_type": "default"}
        config = {field: usual[field] for field in kept if field in usual} | {"rope_parameters": rope}
    if isinstance(kinds := config.get("layer_types"), list):
        config = config | {"layer_types": kinds[:num_layers]}
    return config


def _usual(config: dict[str, Any], where: str) -> dict[str, Any]:
    """The fields of Nomic's layout by the usual names."""
    activation = str(config.get("activation_function"))
    if activation not in GATED:
        raise UserError(f"{where}: activation_function is {activation:.60}, not one of {', '.join(GATED)}")
    usual = {usual: config[name] for usual, name in NOMIC_NAMES.items() if name in config}
    if config.get("rotary_scaling_factor") is not None:
        trained, most = (whole(config, field, None, where) for field in ("max_trained_positions", "n_positions"))
        usual["max_position_embeddings"] = min(trained, most)
    rest = {field: value for field, value in config.items() if field not in NOMIC_NAMES.values()}
    return rest | usual | {"hidden_act": GATED[activation]}


# By model type: from a config and its `ModelType` to the config by usual names and the type with the config's parts.
READERS: dict[str, Callable[[dict[str, Any], ModelType, str], Read]] = {
    "modernbert": modernbert,
    "nomic_bert": nomic_bert,
}


def local_layers(config: Mapping[str, Any], is_local: Callable[[int], object], where: str) -> tuple[int, ...]:
    """The layers whose attention sees a window: those of `layer_types`, or of `is_local` where a file has none."""
    layers, kinds = config.get("num_hidden_layers"), config.get("layer_types")
    if kinds is None:
        count = layers if type(layers) is int and layers <= MOST_LAYERS else 0  # other numbers are refused elsewhere
        return tuple(filter(is_local, range(count)))
    if not isinstance(kinds, list) or not all(kind in (LOCAL, GLOBAL) for kind in kinds) or len(kinds) != layers:
        raise UserError(f"{where}: layer_types is {kinds!r:.60}; it must have {GLOBAL} or {LOCAL} for each layer")
    return tuple(index for index, kind in enumerate(kinds) if kind == LOCAL)


def base_of_rotation(rope: Any, name: str, config: Mapping[str, Any], older: str, default: float, where: str) -> float:
    """The base of rotary positions, in `rope` or in the older field."""
    rope = {} if rope is None else rope
    usual = isinstance(rope, dict) and rope.keys() <= {"rope_type", "rope_theta"}
    if not usual or rope.get("rope_type", "default") != "default":
        raise UserError(f"{where}: {name} is {rope!r:.80}; only a rope_theta of the type 'default' is supported")
    field = f"{name}.rope_theta" if "rope_theta" in rope else older
    return number({field: rope.get("rope_theta", config.get(older, default))}, field, where, 1, MOST_BASE)


def number(config: Mapping[str, Any], field: str, where: str, least: float, most: float) -> float:
    """A field of a `config.json` that is a number within these bounds."""
    value: Any = config.get(field)
    if type(value) not in (int, float) or not least <= value <= most:  # false for a NaN; True is an int to Python
        raise UserError(f"{where}: {field} is {value!r:.60}; it must be a number from {least} to {most}")
    return float(value)


def whole(
    config: Mapping[str, Any], field: str, default: int | None, where: str, least: int = 1, most: int = MOST_WINDOW
) -> int:
    """A field of a `config.json` that is a whole number within these bounds; None: it has no default."""
    value = config.get(field, default)
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"{where}: {field} is {value!r:.60}; it must be a whole number from {least} to {most}")
    return value


def flag(config: Mapping[str, Any], field: str, where: str, default: bool = False) -> bool:
    """A field of a `config.json` that is true or false."""
    value = config.get(field, default)
    if not isinstance(value, bool):
        raise UserError(f"{where}: {field} is {value!r:.60}, neither true nor false")
    return value


def refuse(config: Mapping[str, Any], only: Mapping[str, tuple[Any, ...]], where: str) -> None:
    """Refuses fields with other values than these, the first of which is named."""
    for field, values in only.items():
        if field in config and config[field] not in values:
            raise UserError(f"{where}: {field} is {config[field]!r:.60}; only {values[0]!r} is supported")
