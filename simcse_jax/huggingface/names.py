"""Converts between the weights of Hugging Face's BERT, RoBERTa, MPNet and DistilBERT and our parameters, by name."""

from collections.abc import Container, Mapping

import ml_dtypes
import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.head import PREFIX
from simcse_jax.models.language_model import shapes
from simcse_jax.models.sentence_encoder import build

PREFIXES = ("bert.", "roberta.", "mpnet.", "distilbert.")
FLOATS = [np.dtype(kind) for kind in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]  # of weights
LEGACY = ((".gamma", ".weight"), (".beta", ".bias"))  # in conversions of BERT's TensorFlow release
TABLES = {
    "encoder.embeddings.word.embedding": "embeddings.word_embeddings.weight",
    "encoder.embeddings.position.embedding": "embeddings.position_embeddings.weight",
    "encoder.embeddings.type.embedding": "embeddings.token_type_embeddings.weight",
    "encoder.relative_bias": "encoder.relative_attention_bias.weight",
}
BERT_LAYER = {
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention_output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "intermediate": ("intermediate.dense",),
    "output": ("output.dense",),
    "output_norm": ("output.LayerNorm",),
}
MPNET_LAYER = BERT_LAYER | {
    "qkv": ("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    "attention_output": ("attention.attn.o",),
    "attention_norm": ("attention.LayerNorm",),
}
DISTILBERT_LAYER = {
    "qkv": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention_output": ("attention.out_lin",),
    "attention_norm": ("sa_layer_norm",),
    "intermediate": ("ffn.lin1",),
    "output": ("ffn.lin2",),
    "output_norm": ("output_layer_norm",),
}
LAYERS = {"bert": BERT_LAYER, "roberta": BERT_LAYER, "mpnet": MPNET_LAYER, "distilbert": DISTILBERT_LAYER}
STACKS = {"distilbert": "transformer"}  # the module that has the layers; "encoder" in the others
HEAD_MODULES = ("mlp.dense", "pooler.dense")  # in the reference's training code, and in a converted model


def _sources(name: str, model_type: str, head: str | None) -> list[str]:
    """The Hugging Face tensors that make up our parameter `name`, in order; `head` is the module of our head."""
    if name in TABLES:
        return [TABLES[name]]
    module, _, kind = name.removeprefix("encoder.").rpartition(".")
    suffix = {"kernel": "weight", "scale": "weight", "bias": "bias"}[kind]
    if name.startswith(PREFIX):
        return [f"{head}.{suffix}"]
    if module == "embeddings.norm":
        return [f"embeddings.LayerNorm.{suffix}"]
    _, index, part = module.split(".")
    return [f"{_layer(model_type, index)}.{source}.{suffix}" for source in LAYERS[model_type][part]]


def _layer(model_type: str, index: int | str) -> str:
    """The module of a layer."""
    return f"{STACKS.get(model_type, 'encoder')}.layer.{index}"


def normalize_names(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Removes the prefix (`bert.`, `roberta.`, and so on) and renames gamma and beta to weight and bias."""
    names = {}
    for name, value in tensors.items():
        for prefix in PREFIXES:
            name = name.removeprefix(prefix)
        for old, new in LEGACY:
            if name.endswith(old):
                name = name.removesuffix(old) + new
        names[name] = value
    return names


def head_module(tensors: Container[str]) -> str | None:
    """The module that can serve as a head, by its normalized name; None if there is none."""
    return next((name for name in HEAD_MODULES if f"{name}.weight" in tensors), None)


def to_params(
    tensors: Mapping[str, np.ndarray], config: EncoderConfig, head: str | None, where: str
) -> dict[str, np.ndarray]:
    """Converts a checkpoint's tensors to our parameters.

    Args:
      tensors: by the names that `normalize_names` returns.
      config: decides the shapes; further layers and heads of the checkpoint are left out.
      head: the module that is the model's head, or None for a model without one.
      where: the file or folder, for error messages.

    Returns:
      float32 arrays by our names; dense kernels transposed, query, key and value joined.

    Raises:
      UserError: when a tensor is missing, its shape does not fit `config`, or its values are no finite numbers.
    """

    def part(source: str, wanted: tuple[int, ...]) -> np.ndarray:
        if source not in tensors:
            raise UserError(f"{where}: the tensor {source!r} is missing; is this a {config.model_type} checkpoint?")
        if (shape := tensors[source].shape) != wanted:
            raise UserError(f"{where}: {source!r} has shape {shape}, but config.json asks for {wanted}")
        return tensors[source]

    for source, shape in _outline(config).items():  # before the network is built, which may be a huge one
        part(source, shape)
    params = {}
    for name, expected in build(config, with_head=head is not None)[1].items():
        sources = _sources(name, config.model_type, head)
        wanted = expected.shape[::-1] if name.endswith("kernel") else expected.shape
        wanted = (wanted[0] // len(sources), *wanted[1:])
        parts = [_float32(part(source, wanted), source, where) for source in sources]
        joined = np.concatenate(parts) if len(parts) > 1 else parts[0]
        params[name] = np.ascontiguousarray(joined.T) if name.endswith("kernel") else joined
    return params


def _outline(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """Tensors that a checkpoint must have, which together have every size of the config, and their shapes."""
    layer = LAYERS[config.model_type]
    rows = {"word_embeddings": config.vocab_size, "position_embeddings": config.max_positions}
    outline: dict[str, tuple[int, ...]] = {
        f"embeddings.{table}.weight": (count, config.hidden_size) for table, count in rows.items()
    }
    modules = [_layer(config.model_type, index) for index in range(config.num_layers)]
    outline[f"{modules[0]}.{layer['intermediate'][0]}.bias"] = (config.intermediate_size,)
    norms = (f"{module}.{layer['output_norm'][0]}.weight" for module in modules)
    return outline | dict.fromkeys(norms, (config.hidden_size,))


def _float32(tensor: np.ndarray, name: str, where: str) -> np.ndarray:
    """A tensor of weights as float32.

    Raises:
      UserError: when it is of another kind, or has a value that is not finite.
    """
    if tensor.dtype not in FLOATS:
        kinds = ", ".join(str(kind) for kind in FLOATS)
        raise UserError(f"{where}: {name!r} has the type {tensor.dtype}; weights must be {kinds}")
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(tensor, np.float32)
        total = values.sum()  # three times as fast as to look at each value
    if not np.isfinite(total) and not np.isfinite(values).all():
        raise UserError(f"{where}: {name!r} has values that are not finite; download or train the model again")
    return values


def to_tensors(params: Mapping[str, AnyArray], model_type: str) -> dict[str, np.ndarray]:
    """The inverse of `to_params`, for `BertModel` and the like; a head becomes the pooler's layer.

    `DistilBertModel` has no pooler, and leaves that layer unread.
    """
    tensors = {}
    for name, value in params.items():
        array = np.asarray(value, np.float32)
        if name.endswith("kernel"):
            array = array.T
        sources = _sources(name, model_type, head="pooler.dense")
        for source, part in zip(sources, np.split(array, len(sources)), strict=True):
            tensors[source] = np.ascontiguousarray(part)
    return tensors


# Where each kind of checkpoint has the arrays of its language-model head, by our names.
BERT_HEAD = {
    "dense.kernel": "cls.predictions.transform.dense.weight",
    "dense.bias": "cls.predictions.transform.dense.bias",
    "norm.scale": "cls.predictions.transform.LayerNorm.weight",
    "norm.bias": "cls.predictions.transform.LayerNorm.bias",
    "bias": "cls.predictions.bias",
}
ROBERTA_HEAD = {
    "dense.kernel": "lm_head.dense.weight",
    "dense.bias": "lm_head.dense.bias",
    "norm.scale": "lm_head.layer_norm.weight",
    "norm.bias": "lm_head.layer_norm.bias",
    "bias": "lm_head.bias",
}
DISTILBERT_HEAD = {
    "dense.kernel": "vocab_transform.weight",
    "dense.bias": "vocab_transform.bias",
    "norm.scale": "vocab_layer_norm.weight",
    "norm.bias": "vocab_layer_norm.bias",
    "bias": "vocab_projector.bias",
}
LANGUAGE_MODELS = {"bert": BERT_HEAD, "roberta": ROBERTA_HEAD, "mpnet": ROBERTA_HEAD, "distilbert": DISTILBERT_HEAD}
OTHER_BIASES = ("cls.predictions.decoder.bias", "lm_head.decoder.bias")
DECODERS = ("cls.predictions.decoder.weight", "lm_head.decoder.weight", "vocab_projector.weight")
WORDS = "embeddings.word_embeddings.weight"


def read_head(tensors: Mapping[str, np.ndarray], config: EncoderConfig) -> dict[str, np.ndarray] | None:
    """The language-model head of a checkpoint, as `logits` takes it.

    Args:
      tensors: by the names that `normalize_names` returns.
      config: decides the shapes.

    Returns:
      float32 arrays, the dense kernel transposed. None for a checkpoint with no head, an incomplete one, one of other
      shapes than `config` has or of integers, or one whose decoder is not tied to the word embeddings, as `logits`
      requires.
    """
    words = tensors.get(WORDS)
    if any(name in tensors and (words is None or not np.array_equal(tensors[name], words)) for name in DECODERS):
        return None
    head = {}
    for name, shape in shapes(config).items():
        sources = [own[name] for own in LANGUAGE_MODELS.values()] + [*(OTHER_BIASES if name == "bias" else ())]
        value = next((tensors[source] for source in sources if source in tensors), None)
        if value is None or value.dtype not in FLOATS:
            return None
        if value.shape != shape:  # e.g. padded to more words
            return None
        head[name] = np.ascontiguousarray(value.T if name.endswith("kernel") else value, np.float32)
    return head


def head_tensors(head: Mapping[str, AnyArray], model_type: str) -> dict[str, np.ndarray]:
    """The inverse of `read_head`, without the decoder's weights, which are the word embeddings."""
    arrays = {name: np.asarray(value, np.float32) for name, value in head.items()}
    return {
        LANGUAGE_MODELS[model_type][name]: np.ascontiguousarray(array.T if name.endswith("kernel") else array)
        for name, array in arrays.items()
    }
