"""The shape of an encoder, read from a Hugging Face `config.json`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from simcse_jax.errors import UserError, hint
from simcse_jax.models import decoders, model_types
from simcse_jax.models.model_types import (
    AFTER_PADDING,
    FROM_ZERO,
    MODEL_TYPES,
    MOST_LAYERS,
    NONE,
    ROTARY,
    WORD_VECTORS,
    ModelType,
    RotaryScaling,
    flag,
    number,
    refuse,
    whole,
)

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")  # of embeddings; distances are negative

TASKS = "task_type_vocab_size"  # read where `use_task_id` is true

# The fields of `EncoderConfig` that all files have, and those of some model types, by their names there.
SIZES = {
    **{name: name for name in ("vocab_size", "hidden_size", "intermediate_size", "pad_token_id")},
    **{"num_layers": "num_hidden_layers", "num_heads": "num_attention_heads"},
    "max_positions": "max_position_embeddings",
}
OWN_SIZES = {"type_vocab_size": "type_vocab_size", "embedding_size": "embedding_size"}
OWN_SIZES |= {"num_hidden_groups": "layer_groups", TASKS: "task_types"}

# The most of each number: hundreds of times the largest published encoder's.
MOST = {"num_hidden_layers": MOST_LAYERS, "num_hidden_groups": MOST_LAYERS}
MOST |= dict.fromkeys(("vocab_size", "max_position_embeddings", "pad_token_id"), 1 << 26)
MOST |= dict.fromkeys(("hidden_size", "num_attention_heads", "type_vocab_size", TASKS, "embedding_size"), 1 << 16)
MOST |= {"intermediate_size": 1 << 20}
MOST_WORDS = 4096  # of a sentence whose word vectors are averaged; it is padded to so many in memory
# With any of these the model computes something else.
OTHER_MODELS = ("is_decoder", "add_cross_attention", "pruned_heads", "quantization_config")

READERS = model_types.READERS | decoders.READERS  # of configs that say more than sizes


class Template(NamedTuple):
    """The ids of the tokens around every sentence, special ones at the ends included."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of the tokens."""
        return len(self.before) + len(self.after)


@dataclasses.dataclass(frozen=True)
class Convolutions:
    """Convolutions over the token states, one after the other in a token's features (see `models.convolutions`)."""

    widths: tuple[int, ...]  # in tokens, each odd
    channels: int  # of each
    activation: str  # of `CONVOLUTION_ACTIVATIONS`

    @property
    def size(self) -> int:
        """The number of features of a token."""
        return len(self.widths) * self.channels


@dataclasses.dataclass(frozen=True)
class Dense:
    """A linear layer and an activation: `kernel` (D, E), `bias` (E,) and, to add inputs of D ≠ E, `residual` (D, E)."""

    activation: str  # of `models.modules.ACTIVATIONS`
    size: int  # E
    residual: bool = False  # adds the input to the output
    # `repr=False`: see `EncoderConfig`
    _: dataclasses.KW_ONLY
    inputs: int = dataclasses.field(repr=False)  # D
    bias: bool = dataclasses.field(default=True, repr=False)


@dataclasses.dataclass(frozen=True)
class LayerNorm:
    """Layer normalization: `scale` (D,) and `bias` (D,)."""

    _: dataclasses.KW_ONLY
    inputs: int = dataclasses.field(repr=False)  # D


@dataclasses.dataclass(frozen=True)
class Normalize:
    """Scales embeddings to length 1."""


@dataclasses.dataclass(frozen=True)
class Cut:
    """Keeps the first elements of an embedding."""

    size: int


Module = Dense | LayerNorm | Normalize | Cut


def output_size(modules: Sequence[Module], size: int) -> int:
    """The number of elements of an embedding after all modules; `size` is that before them."""
    for module in modules:
        if isinstance(module, Dense):
            size = module.size
        elif isinstance(module, Cut):
            size = min(size, module.size)
    return size


@dataclasses.dataclass(frozen=True)
class Site:
    """A linear map of a layer, as Hugging Face's classes have them: some columns of one of our products."""

    part: str  # the product: qkv, attention_output, intermediate or output
    index: int = 0  # the map's number among those that the product joins
    count: int = 1  # how many it joins

    @property
    def name(self) -> str:
        """Its name among the parameters of a layer."""
        return self.part if self.count == 1 else f"{self.part}_{self.index}"


@dataclasses.dataclass(frozen=True)
class Lora:
    """Products of low rank that are added to linear maps (see `models.lora`)."""

    rank: int
    alpha: float
    sites: tuple[Site, ...]  # of each layer that trains

    @property
    def scale(self) -> float:
        """The factor of the products."""
        return self.alpha / self.rank


@dataclasses.dataclass(frozen=True)
class Partial:
    """Which part of an encoder trains (see `models.partial`)."""

    frozen_embeddings: bool = False
    frozen_layers: int = 0  # the first so many
    lora: Lora | None = None  # then nothing else of the encoder trains


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """Everything that determines an encoder's shapes and its deterministic forward pass."""

    model_type: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    intermediate_size: int
    max_positions: int  # rows of the position table; a sentence may have `max_length` tokens
    type_vocab_size: int  # 0: the model has no types
    layer_norm_eps: float
    hidden_act: str
    pad_token_id: int
    convolutions: Convolutions | None = dataclasses.field(default=None, repr=False)  # after the last layer
    # The parts, with BERT's as defaults. `repr=False`: the repr is part of `SimCSE.identity`, which indexes keep.
    _: dataclasses.KW_ONLY
    positions: str = dataclasses.field(default=FROM_ZERO, repr=False)  # of `models.model_types`
    relative_bias: bool = dataclasses.field(default=False, repr=False)  # added to attention's scores
    drops_attention_output: bool = dataclasses.field(default=True, repr=False)
    drops_feed_forward_output: bool = dataclasses.field(default=True, repr=False)
    # Of the embedding tables; a dense layer then makes `hidden_size` of them. None: they have `hidden_size` columns.
    embedding_size: int | None = dataclasses.field(default=None, repr=False)
    # Layers in so many groups of neighbours, each with one set of parameters; None: every layer has its own.
    layer_groups: int | None = dataclasses.field(default=None, repr=False)
    task_types: int = dataclasses.field(default=0, repr=False)  # 0: the model has none
    language_model_act: str | None = dataclasses.field(default=None, repr=False)  # None: `hidden_act`
    rotary_base: float = dataclasses.field(default=0.0, repr=False)  # of `ROTARY` positions
    local_rotary_base: float = dataclasses.field(default=0.0, repr=False)  # in local layers; 0: all rotate as one
    local_layers: tuple[int, ...] = dataclasses.field(default=(), repr=False)  # whose attention sees a window
    window: int = dataclasses.field(default=0, repr=False)  # the most positions from a query to a key in local layers
    gated: bool = dataclasses.field(default=False, repr=False)  # the feed-forward network
    pre_norm: bool = dataclasses.field(default=False, repr=False)  # a norm before each part of a layer, and a final one
    attention_bias: bool = dataclasses.field(default=True, repr=False)  # of queries, keys and values
    attention_output_bias: bool = dataclasses.field(default=True, repr=False)
    feed_forward_bias: bool = dataclasses.field(default=True, repr=False)
    norm_bias: bool = dataclasses.field(default=True, repr=False)
    language_model_bias: bool = dataclasses.field(default=True, repr=False)  # of the dense layer in its head
    tied_head: bool = dataclasses.field(default=True, repr=False)  # its language model's words are the embeddings
    # The parts of decoders, which read a text from left to right, or (`causal` False) as encoders do.
    causal: bool = dataclasses.field(default=False, repr=False)
    guesses_next: bool = dataclasses.field(default=False, repr=False)  # its language model: the word after a position
    head_dim: int | None = dataclasses.field(default=None, repr=False)  # None: hidden_size / num_heads
    key_heads: int | None = dataclasses.field(default=None, repr=False)  # of keys and values; None: num_heads
    rms_norm: bool = dataclasses.field(default=False, repr=False)
    norm_offset: float = dataclasses.field(default=0.0, repr=False)  # added to norms' scales
    query_key_norm: bool = dataclasses.field(default=False, repr=False)  # of each head's queries and keys
    result_norm: bool = dataclasses.field(default=False, repr=False)  # also of what is added to the hidden states
    embedding_norm: bool = dataclasses.field(default=True, repr=False)
    embedding_scale: float = dataclasses.field(default=1.0, repr=False)
    rotary_scaling: RotaryScaling | None = dataclasses.field(default=None, repr=False)  # by `rotary_base`
    partial: Partial | None = dataclasses.field(default=None, repr=False)  # None: all of it trains
    attention_kernels: bool = dataclasses.field(default=False, repr=False)  # whether the hardware's own may be used
    mask_token_id: int | None = dataclasses.field(default=None, repr=False)  # its tokenizer's, if that is known
    modules: tuple[Module, ...] = dataclasses.field(default=(), repr=False)  # after its own pooler and head

    @property
    def identity(self) -> str:
        """Everything but weights and repr that embeddings depend on; indexes and half-encoded files keep it."""
        text = repr(self.convolutions) if self.convolutions else ""
        if self.positions == ROTARY:
            text += repr((self.rotary_base, self.local_rotary_base)) + repr((self.local_layers, self.window))
        if self.causal or self.rotary_scaling:
            text += repr((self.causal, self.rotary_scaling))
        return text

    @property
    def token_size(self) -> int:
        """The number of features of a token that the pooler reads."""
        return self.convolutions.size if self.convolutions else self.hidden_size

    @property
    def sentence_size(self) -> int:
        """The number of elements of a sentence's embedding."""
        return output_size(self.modules, self.token_size)

    @property
    def table_size(self) -> int:
        """The columns of the tables of words, positions and types."""
        return self.embedding_size or self.hidden_size

    @property
    def head_size(self) -> int:
        """d, the numbers in a head."""
        return self.head_dim or self.hidden_size // self.num_heads

    @property
    def heads_width(self) -> int:
        """The features of all heads' queries, and of what attention gives."""
        return self.num_heads * self.head_size

    @property
    def qkv_widths(self) -> tuple[int, int, int]:
        """The features of queries, keys and values."""
        keys = (self.key_heads or self.num_heads) * self.head_size
        return self.heads_width, keys, keys

    def columns(self, site: Site) -> slice:
        """Which columns of its product a linear map makes."""
        wide = self.intermediate_size * (1 + self.gated)
        totals = {"attention_output": self.hidden_size, "intermediate": wide, "output": self.hidden_size}
        widths = [totals.get(site.part, sum(self.qkv_widths)) // site.count] * site.count
        if site.part == "qkv" and site.count == len(self.qkv_widths):
            widths = [*self.qkv_widths]
        first = sum(widths[: site.index])
        return slice(first, first + widths[site.index])

    @property
    def max_length(self) -> int:
        """The most tokens a sentence may have."""
        return self.max_positions - (self.pad_token_id + 1 if self.positions == AFTER_PADDING else 0)

    @property
    def groups(self) -> list[int]:
        """For each of L layers, the number of its parameters, from 0: its own, or its group's."""
        if self.layer_groups is None:
            return list(range(self.num_layers))
        return [int(layer / (self.num_layers / self.layer_groups)) for layer in range(self.num_layers)]  # as ALBERT

    @property
    def lora(self) -> Lora | None:
        """LoRA's settings; None: no LoRA."""
        return self.partial.lora if self.partial else None

    def adapted(self, group: int) -> tuple[Site, ...]:
        """The linear maps with LoRA of the layers whose parameters have this number; frozen layers have none."""
        if not (self.partial and self.lora) or group in self.groups[: self.partial.frozen_layers]:
            return ()
        return self.lora.sites

    @classmethod
    def of_words(cls, vocab_size: int, hidden_size: int) -> "EncoderConfig":
        """Word vectors alone: a table of (vocab_size, hidden_size), no positions, no layers."""
        return cls(WORD_VECTORS, vocab_size, hidden_size, 0, 1, 0, MOST_WORDS, 0, 0.0, GELU[0], 0)

    @classmethod
    def from_hugging_face(cls, config: dict[str, Any], where: str) -> "EncoderConfig":
        """Reads the fields of a `config.json`."""
        if config.get("model_type") == WORD_VECTORS:
            return cls.of_words(*(_whole(config, field, where) for field in ("vocab_size", "hidden_size")))
        kind = _kind_of(config, where)
        if (read := READERS.get(config["model_type"])) is not None:
            config, kind = read(config, kind, where)
        usual = {usual: config[name] for usual, name in kind.names.items() if name in config}
        config = {**BERT_DEFAULTS, **kind.defaults, **config, **usual, **kind.fixed}
        if config.get("pad_token_id") is None:
            config["pad_token_id"] = kind.defaults.get("pad_token_id", 0)
        own_name = kind.names.get("hidden_act", "hidden_act")
        head_act = kind.parts.get("language_model_act", "gelu")
        for field, activation in ((own_name, config["hidden_act"]), ("classifier_activation", head_act)):
            if activation not in ACTIVATIONS:
                raise UserError(f"{where}: {field} {activation!r:.60} is not one of {', '.join(ACTIVATIONS)}")
        present = (field for field in kind.sizes if field != TASKS or flag(config, "use_task_id", where))
        sizes: dict[str, Any] = {name: _whole(config, field, where, kind.names) for name, field in SIZES.items()}
        sizes |= {OWN_SIZES[field]: _whole(config, field, where) for field in present}
        epsilon = kind.names.get("layer_norm_eps", "layer_norm_eps")
        fields = cls(
            model_type=config["model_type"],
            type_vocab_size=sizes.pop("type_vocab_size", 0),
            layer_norm_eps=number({epsilon: config["layer_norm_eps"]}, epsilon, where, 0, 1),
            hidden_act=config["hidden_act"],
            **sizes,
            **kind.parts,
        )
        if not kind.projects_always and fields.embedding_size == fields.hidden_size:
            fields = dataclasses.replace(fields, embedding_size=None)
        if fields.pad_token_id >= fields.vocab_size:
            raise UserError(f"{where}: pad_token_id is {fields.pad_token_id}, but vocab_size {fields.vocab_size}")
        if fields.max_length < 3:  # two tokens are special
            raise UserError(f"{where}: max_position_embeddings is {fields.max_positions}, too few for a sentence")
        in_pairs = fields.positions == ROTARY  # which turn pairs of a head's numbers
        if not fields.head_dim and fields.hidden_size % (fields.num_heads * (1 + in_pairs)):
            name = kind.names.get("hidden_size", "hidden_size")
            heads = f"{fields.num_heads} heads" + " of an even size" * in_pairs
            raise UserError(f"{where}: {name} {fields.hidden_size} is not divisible by {heads}")
        if (groups := fields.layer_groups or 1) > fields.num_layers:
            raise UserError(f"{where}: num_hidden_groups is {groups}, more than {fields.num_layers} layers")
        return fields

    def keep_layers(self, num_layers: int) -> "EncoderConfig":
        """The first `num_layers` layers; 0 keeps all of them."""
        options = f"model.num_layers={num_layers}, --num-layers {num_layers} or NAME@{num_layers}"
        if not 0 <= num_layers <= self.num_layers:
            raise UserError(f"{options}: the model has {self.num_layers} layers (0 keeps all)")
        groups = self.groups[:num_layers] if self.layer_groups and num_layers else []
        count = num_layers or self.num_layers
        kept = dataclasses.replace(
            self,
            num_layers=count,
            layer_groups=len(set(groups)) or self.layer_groups,
            local_layers=tuple(layer for layer in self.local_layers if layer < count),
        )
        if groups not in ([], kept.groups):
            shared = f"{self.num_layers} layers share parameters in {self.layer_groups} groups"
            raise UserError(f"{options}: the model's {shared}; keep whole groups")
        return kept


def _kind_of(config: Mapping[str, Any], where: str) -> ModelType:
    """The line of `MODEL_TYPES`; refuses other types, and fields with which a model is another one."""
    model_type = str(config.get("model_type"))[:60]
    if model_type not in MODEL_TYPES:
        supported = f"supported are {', '.join(MODEL_TYPES)}{hint(model_type, MODEL_TYPES)}"
        raise UserError(f"{where}: model_type is {model_type!r}; {supported}")
    kind = MODEL_TYPES[model_type]
    only: dict[str, tuple[Any, ...]] = {field: (value, None) for field, value in kind.only.items()}
    only |= {field: (None, False, {}) for field in OTHER_MODELS}
    refuse(config, only | ({} if model_type in READERS else {"position_embedding_type": ("absolute",)}), where)
    return kind


def _whole(config: Mapping[str, Any], field: str, where: str, names: Mapping[str, str] = NONE) -> int:
    """A field that is a whole number within its bounds; `names` maps ours to the file's where they differ."""
    name = names.get(field, field)
    return whole({name: config.get(field)}, name, None, where, int(field != "pad_token_id"), MOST[field])


# Hugging Face's names of activations; the functions are in nonlinearities.py.
GELU = ("gelu", "gelu_python")
GELU_TANH = ("gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate")
ACTIVATIONS = (*GELU, *GELU_TANH, "quick_gelu", "relu", "silu", "swish")
BERT_DEFAULTS = {"layer_norm_eps": 1e-12, "hidden_act": GELU[0]}
