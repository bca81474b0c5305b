"""LoRA's parameters in PEFT's format: a folder with `adapter_config.json` and `adapter_model.safetensors`.

PEFT calls the linear maps of a layer as transformers' classes do.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simcse_jax.errors import UserError, hint
from simcse_jax.host.storage import local_path, read_json, sha256, write_json
from simcse_jax.host.version import __version__
from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.tokenizer import MARKER, stated
from simcse_jax.huggingface.weight_files import read_safetensors, write_safetensors
from simcse_jax.huggingface.weight_names import NAMES, normalize_names, tensor_of
from simcse_jax.models import lora
from simcse_jax.models.arrays import AnyArray
from simcse_jax.models.config import EncoderConfig, Lora, Site

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
BASE = "base_model_name_or_path"  # in CONFIG
BASE_SHA256 = "base_sha256"  # in our marker: of the base's encoder
PREFIX = "base_model.model."  # of all tensors, the base's names come after it
KINDS = ("lora_A", "lora_B")
# Of PEFT's fields, those that may have a value: they are compared with ours, or the tensors have what they say. Any
# other one (DoRA, scales of another rule, ranks of single maps, saved modules, and those to come) makes something else
# of the products, or has parameters of its own.
UNDERSTOOD = {
    *("peft_type", "peft_version", "task_type", "auto_mapping", "inference_mode", "revision", BASE),
    *("r", "lora_alpha", "lora_dropout", "bias", "init_lora_weights", "target_modules", "exclude_modules"),
    *("layers_to_transform", "layers_pattern", "ensure_weight_tying", "qalora_group_size", "megatron_core"),
}
# With other values it is no LoRA, or the base changes too (PiSSA, OLoRA, LoftQ, CorDA).
ONLY: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": (None, "none"),
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),
}
ALL = "all-linear"  # stands for all maps


def base_fingerprint(params: Mapping[str, AnyArray]) -> str:
    """SHA-256 of an encoder's own parameters, without LoRA's, a head's and the like."""
    names = sorted(name for name in params if name.startswith("encoder.") and lora.NAME not in name.split("."))
    return sha256(*(np.asarray(params[name]) for name in names))


def write_adapter(
    params: Mapping[str, AnyArray],
    encoder: EncoderConfig,
    folder: Path,
    *,
    base: str,
    sha: str,
    dropout: float,
    revision: str | None = None,
) -> None:
    """Writes LoRA's parameters into an empty folder, for PEFT and for `read_adapter`.

    `base`: the name of the model that the run started from.
    """
    settings, tensors, modules = lora.lora_of(encoder), {}, []
    for (group, site), names in lora.names(encoder).items():
        modules.append(module_of(encoder.model_type, group, site))
        for kind, name in zip(KINDS, names, strict=True):
            tensors[f"{PREFIX}{modules[-1]}.{kind}.weight"] = np.ascontiguousarray(np.asarray(params[name]).T)
    alpha = settings.alpha
    fields: dict[str, Any] = {"peft_type": "LORA", "task_type": "FEATURE_EXTRACTION", BASE: base, "revision": revision}
    fields |= {"r": settings.rank, "lora_alpha": int(alpha) if alpha.is_integer() else alpha, "lora_dropout": dropout}
    fields |= {"inference_mode": True, "target_modules": modules, "bias": "none", "fan_in_fan_out": False}
    fields |= {"init_lora_weights": True}
    write_json(folder / CONFIG, fields)
    write_safetensors(folder / WEIGHTS, tensors)
    write_json(folder / MARKER, {BASE_SHA256: sha, "version": __version__})


def read_adapter(name: str, encoder: EncoderConfig, model: Pretrained) -> dict[str, np.ndarray]:
    """LoRA's parameters from a folder of PEFT's, by our names.

    Those of the pooler's dense layer, which PEFT's `all-linear` adds, are left out where the base has no head: then no
    embedding depends on them.

    `encoder`: of the model, with `partial`: rank, alpha and targets must be the folder's.
    """
    folder = local_path(name)
    if not (folder / CONFIG).is_file():
        raise UserError(f"config.model.lora.init_from={name}: has no {CONFIG}; give a folder in PEFT's format")
    fields = read_json(folder / CONFIG)
    _check_config(fields, folder / CONFIG, lora.lora_of(encoder))
    _check_base(fields, folder, model)
    path = folder / WEIGHTS
    unread = () if model.has_head else f"{NAMES[encoder.model_type].pooler}.lora_"
    named = {key.removeprefix(PREFIX): value for key, value in read_safetensors(path).items()}
    tensors = {key: value for key, value in normalize_names(named).items() if not key.startswith(unread)}
    expected = {
        f"{module_of(encoder.model_type, group, site)}.{kind}.weight": (parameter, (rows, columns))
        for (group, site), names in lora.names(encoder).items()
        for (read, made), rank in [(lora.features(encoder, site), lora.lora_of(encoder).rank)]
        for kind, parameter, rows, columns in [(KINDS[0], names[0], rank, read), (KINDS[1], names[1], made, rank)]
    }
    if other := sorted(tensors.keys() - expected.keys()):
        cure = "set model.lora.targets and model.freeze.layers as the adapter was trained"
        raise UserError(f"{path}: has the tensor {other[0]!r:.120}, which {model.name} has no place for; {cure}")
    return {
        parameter: np.array(tensor_of(tensors, key, shape, str(path)).T, order="C")
        for key, (parameter, shape) in expected.items()
    }


def _check_config(fields: Mapping[str, Any], path: Path, expected: Lora) -> None:
    refused = {field: fields[field] for field in sorted(fields.keys() - UNDERSTOOD) if fields[field]}
    refused |= {field: fields.get(field) for field, values in ONLY.items() if fields.get(field) not in values}
    for field, value in refused.items():
        raise UserError(f"{path}: {field:.60} is {value!r:.60}; such an adapter is not supported")
    for field, name, value in (("r", "rank", expected.rank), ("lora_alpha", "alpha", expected.alpha)):
        if fields.get(field) != value:
            raise UserError(
                f"{path}: {field} is {fields.get(field)!r:.60}, but config.model.lora.{name} is {value}; set it to the "
                "adapter's"
            )


def _check_base(fields: Mapping[str, Any], folder: Path, model: Pretrained) -> None:
    """Refuses an adapter of another model: by the base's weights if we wrote it, otherwise by the base's name."""
    named, sha = fields.get(BASE), stated(folder, MARKER).get(BASE_SHA256)
    if sha is not None:
        if sha != base_fingerprint(model.params):
            raise UserError(f"{folder}: is an adapter of {named!r:.100}; {model.name} has other weights")
    elif Path(str(named or "")).name not in {Path(name).name for name in (model.name, model.name.partition("@")[0])}:
        raise UserError(
            f"{folder / CONFIG}: {BASE} is {named!r:.100}, but config.model.init_from is {model.name!r:.100}; start "
            "from that model, or write the other name there if they are the same"
        )


def linear_maps(model_type: str) -> dict[str, Site]:
    """Each linear map of a layer, by the name of its module within the layer."""
    names = NAMES[model_type].modules or NAMES[model_type].layer
    return {
        module: Site(part, index, len(names[part])) for part in lora.PARTS for index, module in enumerate(names[part])
    }


def module_of(model_type: str, group: int, site: Site) -> str:
    """The name of a linear map's module in transformers' class of the encoder."""
    names = NAMES[model_type]
    part = (names.modules or names.layer)[site.part][site.index]
    return f"{(names.module_stack or names.stack).format(group)}.{part}"


def sites(encoder: EncoderConfig, targets: Sequence[str], field: str) -> tuple[Site, ...]:
    """The linear maps that are called by the last parts of their modules' names, as in PEFT's `target_modules`.

    `targets`: names; `ALL` stands for all maps, and none at all for those of queries and values.
    """
    maps = linear_maps(encoder.model_type)
    if not targets:
        return tuple(site for site in maps.values() if site.part == "qkv" and site.index != 1)
    endings = [end for module in maps for end in _ends(module)]
    for target in targets:
        if target not in (*endings, ALL):
            raise UserError(
                f"{field}: {target!r:.60} is not a linear map of a layer of the type {encoder.model_type}"
                f"{hint(target, endings)}; there are {', '.join(maps)}"
            )
    return tuple(
        site for module, site in maps.items() if any(target == ALL or target in _ends(module) for target in targets)
    )


def _ends(module: str) -> list[str]:
    """A name, and its endings without its first parts."""
    parts = module.split(".")
    return [".".join(parts[first:]) for first in range(len(parts))]
