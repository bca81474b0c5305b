"""Converts between the weights of Hugging Face's checkpoints and our parameters, by name."""

import itertools
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.head import PREFIX
from simcse_jax.models.language_model import shapes
from simcse_jax.models.parameters import WORD_EMBEDDING
from simcse_jax.models.sentence_encoder import build

FLOATS = [np.dtype(kind) for kind in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]  # of weights
BUFFERS = ("position_ids", "token_type_ids", "inv_freq")  # in files of older versions of transformers
LEGACY = {"gamma": "weight", "beta": "bias"}  # in conversions of BERT's TensorFlow release
TABLES = {
    "encoder.embeddings.word.embedding": "embeddings.word_embeddings.weight",
    "encoder.embeddings.position.embedding": "embeddings.position_embeddings.weight",
    "encoder.embeddings.type.embedding": "embeddings.token_type_embeddings.weight",
    "encoder.embeddings.task.embedding": "embeddings.task_type_embeddings.weight",
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
ALBERT_LAYER = {
    "qkv": ("attention.query", "attention.key", "attention.value"),
    "attention_output": ("attention.dense",),
    "attention_norm": ("attention.LayerNorm",),
    "intermediate": ("ffn",),
    "output": ("ffn_output",),
    "output_norm": ("full_layer_layer_norm",),
}
# ModernBERT's norms come before attention and before the feed-forward network; its first layer has no attention norm.
MODERNBERT_LAYER = {
    "qkv": ("attn.Wqkv",),
    "attention_output": ("attn.Wo",),
    "attention_norm": ("attn_norm",),
    "intermediate": ("mlp.Wi",),
    "output": ("mlp.Wo",),
    "output_norm": ("mlp_norm",),
}
NOMIC_LAYER = {
    "qkv": ("attn.Wqkv",),
    "attention_output": ("attn.out_proj",),
    "attention_norm": ("norm1",),
    "intermediate": ("mlp.fc12", "mlp.fc11"),  # what the activation takes, and the gate
    "output": ("mlp.fc2",),
    "output_norm": ("norm2",),
}
# Qwen2, Llama and Mistral; Qwen3 has norms of queries and keys, Gemma 3 also of what a layer adds.
LLAMA_LAYER = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention_output": ("self_attn.o_proj",),
    "attention_norm": ("input_layernorm",),
    "intermediate": ("mlp.gate_proj", "mlp.up_proj"),
    "output": ("mlp.down_proj",),
    "output_norm": ("post_attention_layernorm",),
}
QWEN3_LAYER = LLAMA_LAYER | {"query_norm": ("self_attn.q_norm",), "key_norm": ("self_attn.k_norm",)}
GEMMA3_LAYER = QWEN3_LAYER | {
    "attention_result_norm": ("post_attention_layernorm",),
    "output_norm": ("pre_feedforward_layernorm",),
    "output_result_norm": ("post_feedforward_layernorm",),
}
# In transformers' class, which splits and renames what the checkpoints have.
NOMIC_MODULES = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention_output": ("self_attn.o_proj",),
    "intermediate": ("mlp.gate_proj", "mlp.up_proj"),
    "output": ("mlp.down_proj",),
}


def _sources(name: str, model_type: str, head: str | None) -> list[str]:
    """The Hugging Face tensors that make up our parameter `name`, in order; `head` is the module of our head."""
    names = NAMES[model_type]
    if name == WORD_EMBEDDING:
        return [names.words]
    if name in TABLES:
        return [TABLES[name]]
    module, _, kind = name.removeprefix("encoder.").rpartition(".")
    suffix = {"kernel": "weight", "scale": "weight", "bias": "bias"}[kind]
    alone = {PREFIX.removesuffix("."): head, "embeddings.norm": names.embedding_norm, "final_norm": names.final_norm}
    alone |= {"embeddings.projection": names.projection}
    if module in alone:
        return [f"{alone[module]}.{suffix}"]
    _, index, part = module.split(".")
    return [f"{names.stack.format(index)}.{source}.{suffix}" for source in names.layer[part]]


def _ends(name: str, columns: int, sources: int, config: EncoderConfig) -> list[int]:
    """Where the parts of a parameter from several tensors end, along our last axis."""
    if sources == len(config.qkv_widths) and name.split(".")[-2] == "qkv":
        return [*itertools.accumulate(config.qkv_widths)]
    return [columns // sources * number for number in range(1, sources + 1)]


def normalize_names(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Removes the prefix (`bert.`, `roberta.`, and so on) and renames gamma and beta to weight and bias."""
    names = {}
    for name, value in tensors.items():
        for prefix in PREFIXES:
            name = name.removeprefix(prefix)
        module, _, kind = name.rpartition(".")
        names[f"{module}.{LEGACY[kind]}" if module and kind in LEGACY else name] = value
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

    Returns:
      float32 arrays by our names; dense kernels transposed, query, key and value joined.

    Raises:
      UserError: also when embeddings or layers have tensors that the config does not ask for: without them a model
        computes something else.
    """
    params, read = {}, set[str]()
    for name, expected in build(config, with_head=head is not None)[1].items():
        sources = _sources(name, config.model_type, head)
        wanted = expected.shape[::-1] if name.endswith("kernel") else expected.shape
        places = itertools.pairwise([0, *_ends(name, wanted[0], len(sources), config)])
        parts = [
            tensor_of(tensors, source, (end - first, *wanted[1:]), where)
            for source, (first, end) in zip(sources, places, strict=True)
        ]
        read |= {*sources}
        joined = np.concatenate(parts) if len(parts) > 1 else parts[0]
        params[name] = np.array(joined.T if name.endswith("kernel") else joined, order="C")  # not the file's
    names = NAMES[config.model_type]
    outer = ("embeddings", names.embedding_norm, names.projection, names.final_norm, "encoder.relative_attention_bias")
    modules = [module for module in outer if module] + [names.stack.format(group) for group in config.groups]
    inner = tuple(f"{module}." for module in modules)
    for name in tensors:
        if name.startswith(inner) and name not in read and not name.endswith(BUFFERS):
            raise UserError(f"{where}: has the tensor {name!r}, for which config.json does not ask")
    return params


def tensor_of(tensors: Mapping[str, np.ndarray], name: str, shape: tuple[int | None, ...], where: str) -> np.ndarray:
    """A tensor of weights as float32, of this shape (None: of any size there)."""
    if name not in tensors:
        raise UserError(f"{where}: the tensor {name!r} is missing")
    actual = tensors[name].shape
    if len(actual) != len(shape) or any(size not in (None, own) for size, own in zip(shape, actual, strict=True)):
        raise UserError(f"{where}: {name!r} has shape {actual}, but must have {shape}")
    if tensors[name].dtype not in FLOATS:
        kinds = ", ".join(str(kind) for kind in FLOATS)
        raise UserError(f"{where}: {name!r} has the type {tensors[name].dtype}; weights must be {kinds}")
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.asarray(tensors[name], np.float32)
        total = values.sum()  # three times as fast as to look at each value
    if not np.isfinite(total) and not np.isfinite(values).all():
        raise UserError(f"{where}: {name!r} has values that are not finite; download or train the model again")
    return values


def to_tensors(params: Mapping[str, AnyArray], config: EncoderConfig) -> dict[str, np.ndarray]:
    """The inverse of `to_params`, for `BertModel` and the like; a head becomes the pooler's layer.

    Classes without a pooler, such as `DistilBertModel`, leave that layer unread.
    """
    tensors = {}
    for name, value in params.items():
        array = np.asarray(value, np.float32)
        if name.endswith("kernel"):
            array = array.T
        sources = _sources(name, config.model_type, head=NAMES[config.model_type].pooler)
        inner = _ends(name, array.shape[0], len(sources), config)[:-1]
        for source, part in zip(sources, np.split(array, inner), strict=True):
            tensors[source] = np.ascontiguousarray(part)
    return tensors


def read_head(
    tensors: Mapping[str, np.ndarray], config: EncoderConfig, *, tied: bool = True
) -> dict[str, np.ndarray] | None:
    """The language-model head of a checkpoint, as `logits` takes it.

    Args:
      tensors: by the names that `normalize_names` returns.
      tied: False if `tie_word_embeddings` is; the decoder must then be stored.

    Returns:
      float32 arrays, kernels transposed. None for a checkpoint with no head or nothing but the word embeddings, an
      incomplete head, one of other shapes than `config` has or of integers, or an encoder's whose decoder is not tied
      to the word embeddings, as `logits` requires.
    """
    words = tensors.get(NAMES[config.model_type].words)
    decoders = [tensors[name] for name in DECODERS if name in tensors]
    names = NAMES[config.model_type].language_model
    untied = not (tied or decoders) or any(words is None or not np.array_equal(each, words) for each in decoders)
    if untied and not config.guesses_next:
        return None
    head, heads = {}, [names.language_model for names in NAMES.values()]
    wanted = shapes(config)
    if any(names[name] in tensors for name in names.keys() - wanted.keys()):  # a bias that the config says is not there
        return None
    for name, shape in wanted.items():
        sources = [names[name] for names in heads if name in names] + [*(OTHER_BIASES if name == "bias" else ())]
        value = next((tensors[source] for source in sources if source in tensors), None)
        if value is None and name in NAMES[config.model_type].head_may_lack:
            value = np.zeros(shape, np.float32)
        if value is None or value.dtype not in FLOATS:
            return None
        if value.shape != (shape[::-1] if name.endswith("kernel") else shape):  # e.g. padded to more words
            return None
        head[name] = np.array(value.T if name.endswith("kernel") else value, np.float32, order="C")
    return head or None


def head_tensors(head: Mapping[str, AnyArray], model_type: str) -> dict[str, np.ndarray]:
    """The inverse of `read_head`, without the decoder's weights, which are the word embeddings."""
    arrays = {name: np.asarray(value, np.float32) for name, value in head.items()}
    return {
        NAMES[model_type].language_model[name]: np.ascontiguousarray(array.T if name.endswith("kernel") else array)
        for name, array in arrays.items()
    }


def _language_model(dense: str, norm: str, bias: str) -> dict[str, str]:
    names = {"dense.kernel": f"{dense}.weight", "dense.bias": f"{dense}.bias"}
    return names | {"norm.scale": f"{norm}.weight", "norm.bias": f"{norm}.bias", "bias": bias}


# The arrays of a language-model head, by our names.
_BERT = "cls.predictions"
BERT_HEAD = _language_model(f"{_BERT}.transform.dense", f"{_BERT}.transform.LayerNorm", f"{_BERT}.bias")
ROBERTA_HEAD = _language_model("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")
DISTILBERT_HEAD = _language_model("vocab_transform", "vocab_layer_norm", "vocab_projector.bias")
_GENERATOR = "generator_predictions"  # ELECTRA's other half, the discriminator, guesses no words
ELECTRA_HEAD = _language_model(f"{_GENERATOR}.dense", f"{_GENERATOR}.LayerNorm", "generator_lm_head.bias")
ALBERT_HEAD = _language_model("predictions.dense", "predictions.LayerNorm", "predictions.bias")
MODERNBERT_HEAD = _language_model("head.dense", "head.norm", "decoder.bias")
NOMIC_HEAD = _language_model(f"{_BERT}.transform.dense", f"{_BERT}.transform.layer_norm", f"{_BERT}.bias")


NEXT_WORD = {"kernel": "lm_head.weight"}  # decoders' words, where they are not the embeddings
DECODER: dict[str, Any] = {"has_pooler": False, "words": "embed_tokens.weight", "final_norm": "norm"}


class Names(NamedTuple):
    """The tensor names of a model type."""

    prefix: str  # before the encoder's weights, where a checkpoint has others too
    architecture: str  # transformers' class of the encoder alone
    language_model: Mapping[str, str] = BERT_HEAD
    layer: Mapping[str, tuple[str, ...]] = BERT_LAYER
    stack: str = "encoder.layer.{}"  # the module of a layer, or of a group of layers that share their weights
    projection: str = ""  # the dense layer after narrow embeddings
    pooler: str = "pooler.dense"  # the dense layer of the pooler, which our head becomes
    has_pooler: bool = True  # False: transformers' class has none, and leaves our head unread
    words: str = TABLES["encoder.embeddings.word.embedding"]
    embedding_norm: str = "embeddings.LayerNorm"
    final_norm: str = "final_norm"
    head_may_lack: tuple[str, ...] = ()  # biases of the language model's head, zero where a checkpoint has none
    modules: Mapping[str, tuple[str, ...]] | None = None  # of linear maps in transformers' class; None: as in `layer`
    module_stack: str = ""  # the module of a layer there; empty: as in `stack`


NAMES = {
    "bert": Names("bert.", "BertModel"),
    "roberta": Names("roberta.", "RobertaModel", ROBERTA_HEAD),
    "mpnet": Names("mpnet.", "MPNetModel", ROBERTA_HEAD, MPNET_LAYER),
    "distilbert": Names(
        *("distilbert.", "DistilBertModel", DISTILBERT_HEAD, DISTILBERT_LAYER),
        stack="transformer.layer.{}",
        has_pooler=False,
    ),
    "xlm-roberta": Names("roberta.", "XLMRobertaModel", ROBERTA_HEAD),
    "camembert": Names("roberta.", "CamembertModel", ROBERTA_HEAD),
    "ernie": Names("ernie.", "ErnieModel"),
    "electra": Names("electra.", "ElectraModel", ELECTRA_HEAD, projection="embeddings_project", has_pooler=False),
    "albert": Names(
        *("albert.", "AlbertModel", ALBERT_HEAD, ALBERT_LAYER),
        stack="encoder.albert_layer_groups.{}.albert_layers.0",
        projection="encoder.embedding_hidden_mapping_in",
        pooler="pooler",
    ),
    "modernbert": Names(
        *("model.", "ModernBertModel", MODERNBERT_HEAD, MODERNBERT_LAYER, "layers.{}"),
        has_pooler=False,
        words="embeddings.tok_embeddings.weight",
        embedding_norm="embeddings.norm",
    ),
    "nomic_bert": Names(
        *("nomic_bert.", "NomicBertModel", NOMIC_HEAD, NOMIC_LAYER, "encoder.layers.{}"),
        has_pooler=False,
        embedding_norm="emb_ln",
        head_may_lack=("dense.bias", "bias"),  # Nomic's code has neither, transformers' class both
        modules=NOMIC_MODULES,
        module_stack="layers.{}",
    ),
    "qwen2": Names("model.", "Qwen2Model", NEXT_WORD, LLAMA_LAYER, "layers.{}", **DECODER),
    "qwen3": Names("model.", "Qwen3Model", NEXT_WORD, QWEN3_LAYER, "layers.{}", **DECODER),
    "llama": Names("model.", "LlamaModel", NEXT_WORD, LLAMA_LAYER, "layers.{}", **DECODER),
    "mistral": Names("model.", "MistralModel", NEXT_WORD, LLAMA_LAYER, "layers.{}", **DECODER),
    "gemma3_text": Names("model.", "Gemma3TextModel", NEXT_WORD, GEMMA3_LAYER, "layers.{}", **DECODER),
}
PREFIXES = tuple(dict.fromkeys(names.prefix for names in NAMES.values()))
# The decoder's bias and weights under other names; the weights are stored although they are tied.
OTHER_BIASES = tuple(f"{head}.decoder.bias" for head in (_BERT, "lm_head", "predictions"))
DECODERS = (
    *(f"{head}.decoder.weight" for head in (_BERT, "lm_head", "predictions")),
    *("vocab_projector.weight", "generator_lm_head.weight", "decoder.weight"),
)
HEAD_MODULES = ("mlp.dense", "pooler.dense", "pooler")  # in the reference's training code, and in converted models
