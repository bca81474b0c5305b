"""The folders of sentence-transformers' modules CNN, WeightedLayerPooling and WordWeights, and tensors of any module.

CNN comes between Transformer and Pooling, and has no activation. A ReLU after it is a module Dense over the tokens: the
identity, and a ReLU. WeightedLayerPooling averages hidden states of several layers, as some of our poolers do.
WordWeights that count mask tokens alone make a mean the pooler `mask_token`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simcse_jax.choices import MASK_TOKEN
from simcse_jax.errors import UserError
from simcse_jax.host.storage import read_json
from simcse_jax.huggingface.template import MASK_TOKENS
from simcse_jax.huggingface.weight_files import read_weights
from simcse_jax.huggingface.weight_names import tensor_of
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import Convolutions
from simcse_jax.models.convolutions import PREFIX
from simcse_jax.models.parameters import Arrays
from simcse_jax.models.pooling import FIRST_TOKEN

CONFIG = "cnn_config.json"
TOKENS = "token_embeddings"  # what a module reads and writes that comes before the pooler
RELU = "torch.nn.modules.activation.ReLU"
# The poolers that average two hidden states, and which; -1 is the last.
AVERAGED = {"avg_top2": (-2, -1), "avg_first_last": (1, -1), "avg_static_last": (0, -1)}


def read_cnn(folder: Path, size: int) -> tuple[Convolutions, dict[str, np.ndarray]]:
    """The convolutions of a module CNN, without activation, and their parameters by our names."""
    path = folder / CONFIG
    config = read_json(path)
    channels, widths, strides = (config.get(name) for name in ("out_channels", "kernel_sizes", "stride_sizes"))
    if not isinstance(widths, list) or not widths or not all(type(width) is int and width % 2 for width in widths):
        raise Unsupported(f"{path}: kernel_sizes is {widths!r:.60}; only odd ones are supported")
    if isinstance(strides, list) and any(stride != 1 for stride in strides):
        raise Unsupported(f"{path}: stride_sizes is {strides!r:.60}; only 1 is supported")
    shapes: dict[str, tuple[Any, ...]] = {}
    for number, width in enumerate(widths):
        shapes |= {f"convs.{number}.weight": (channels, size, width), f"convs.{number}.bias": (channels,)}
    params = {}
    for name, value in read_tensors(folder, shapes).items():
        parameter = PREFIX + name.removeprefix("convs.").replace("weight", "kernel")
        params[parameter] = np.ascontiguousarray(value.transpose(2, 1, 0)) if name.endswith("weight") else value
    return Convolutions(tuple(widths), len(params[f"{PREFIX}0.bias"]), "none"), params


def is_relu(folder: Path, size: int) -> bool:
    """Whether a module Dense, which comes directly after CNN, is a ReLU of each token's features and nothing else."""
    config = read_json(folder / "config.json")
    if config != config | _relu_fields(size) or config.get("use_residual"):
        return False
    weight = read_tensors(folder, {"linear.weight": (size, size)})["linear.weight"]
    return np.array_equal(weight, np.eye(size, dtype=np.float32))


def _relu_fields(size: int) -> dict[str, Any]:
    names = {"module_input_name": TOKENS, "module_output_name": TOKENS}
    return {"in_features": size, "out_features": size, "bias": False, "activation_function": RELU} | names


def cnn_module(convolutions: Convolutions, size: int, params: Arrays) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The fields and the tensors of the module CNN; `size` is that of the encoder's hidden states."""
    widths, channels = list(convolutions.widths), convolutions.channels
    fields = {
        "in_word_embedding_dimension": size,
        "out_channels": channels,
        "kernel_sizes": widths,
        "stride_sizes": [1] * len(widths),
    }
    tensors: dict[str, np.ndarray] = {}
    for number in range(len(widths)):
        kernel, bias = (_array(params[f"{PREFIX}{number}.{part}"]) for part in ("kernel", "bias"))
        tensors |= {f"convs.{number}.weight": _array(kernel.transpose(2, 1, 0)), f"convs.{number}.bias": bias}
    return fields, tensors


def relu_module(convolutions: Convolutions) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The fields and the tensors of the module Dense that is a ReLU of each token's features."""
    return _relu_fields(convolutions.size), {"linear.weight": np.eye(convolutions.size, dtype=np.float32)}


def _array(value: AnyArray) -> np.ndarray:
    return np.ascontiguousarray(value, np.float32)


class Unsupported(UserError):
    """Something that changes the embeddings and is not read here, in one line that names it and its file."""


def read_tensors(folder: Path, shapes: Mapping[str, tuple[Any, ...]]) -> dict[str, np.ndarray]:
    """The tensors of a module by name, float32."""
    tensors, path = read_weights(folder)
    if other := tensors.keys() - shapes.keys():
        raise Unsupported(f"{path}: the tensor {min(other)!r} is not supported")
    return {name: np.array(tensor_of(tensors, name, shape, str(path))) for name, shape in shapes.items()}


def read_layers(folder: Path, pooler: str) -> str:
    """Our pooler that equals a weighted mean of layers and then `pooler`."""
    config = read_json(folder / "config.json")
    start, layers = config.get("layer_start", 4), config.get("num_hidden_layers", 12)
    if type(start) is not int or type(layers) is not int or not 0 <= start <= layers:
        raise UserError(f"{folder}: damaged: a weight for each layer from {start!r:.20} to {layers!r:.20}")
    tensors, path = read_weights(folder)
    weights = tensor_of(tensors, "layer_weights", (layers + 1 - start,), str(path))
    whole = np.concatenate([np.zeros(start), np.asarray(weights, np.float64)])
    for name in (pooler, *(AVERAGED if pooler == "avg" else ())):
        expected = layer_weights(name, layers) if name != pooler else np.append(np.zeros(layers), 1)
        if expected is not None and np.array_equal(whole * expected.sum(), expected * whole.sum()):
            return name
    raise Unsupported(f"{path}: these weights of layers before the pooling {pooler} are not supported")


def read_word_weights(folder: Path, pooler: str) -> str:
    """Our pooler that equals weights of words and then `pooler`: they count mask tokens alone."""
    path = folder / "config.json"
    config = read_json(path)
    weights, unknown = config.get("word_weights"), config.get("unknown_word_weight", 1)
    if pooler != "avg" or unknown != 0 or weights not in [{token: 1} for token in MASK_TOKENS]:
        raise Unsupported(f"{path}: only weights that count mask tokens alone, in a mean, are supported")
    return MASK_TOKEN


def word_weights_module(vocabulary: list[str], mask_token: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The fields and the tensors of the module WordWeights that counts mask tokens alone."""
    fields = {"vocab": vocabulary, "word_weights": {mask_token: 1.0}, "unknown_word_weight": 0.0}
    counted = np.array([[word == mask_token] for word in vocabulary], np.float32)
    return fields, {"emb_layer.weight": counted}


def layer_weights(pooler: str, num_layers: int) -> np.ndarray | None:
    """(L + 1,) weights of the hidden states, for the poolers that average layers; None for the others."""
    if pooler not in AVERAGED:
        return None
    weights = np.zeros(num_layers + 1, np.float32)
    for layer in AVERAGED[pooler]:
        weights[layer] += 1
    return weights


def pooling_for(pooler: str, num_layers: int) -> tuple[str, np.ndarray | None]:
    """The written form of one of our poolers: a pooling of tokens, after (L + 1,) weights of the layers."""
    weights = layer_weights(pooler, num_layers)
    return "cls" if pooler in FIRST_TOKEN else "avg" if weights is not None else pooler, weights


def is_written_as(pooler: str, num_layers: int, read: str) -> bool:
    """Whether modules that were read as the pooler `read` are the written form of `pooler`."""
    last = np.append(np.zeros(num_layers), 1)
    written, read_back = (
        (tokens, (last if weights is None else weights / weights.sum()).tolist())
        for tokens, weights in (pooling_for(pooler, num_layers), pooling_for(read, num_layers))
    )
    return written == read_back
