"""Damaged adapters of PEFT's, adapters of other models, and parts of an encoder that do not exist."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from hostile.case import EITHER, PAIRS, REFUSED, TEXT, Case
from hostile.damages import Make, both, cut, flip, instead, remove, write
from hostile.json_damages import drop_field, set_field
from hostile.seeds import train_arguments

CONFIG, WEIGHTS, MARKER = (
    f"adapter/{name}" for name in ("adapter_config.json", "adapter_model.safetensors", "simcse_jax.json")
)
RANK = {"model__lora__rank": 2, "model__lora__alpha": 4.0}
OURS = {**RANK, "model__lora__init_from": "adapter"}


def tensors(change: Callable[[dict[str, np.ndarray]], object]) -> Make:
    """Writes the adapter's tensors again, after a change."""

    def make(folder: Path) -> None:
        from safetensors.numpy import load_file, save_file

        found = load_file(folder / WEIGHTS)
        change(found)
        save_file(found, folder / WEIGHTS, metadata={"format": "pt"})

    return make


def first(value: Callable[[np.ndarray], np.ndarray]) -> Make:
    return tensors(lambda found: found.update({min(found): np.ascontiguousarray(value(found[min(found)]))}))


DAMAGES: dict[str, tuple[Make, str, str]] = {  # what it does, how the run ends, and what the line names
    "is a file": (instead("adapter", lambda path: path.write_text("x")), REFUSED, "adapter"),
    "is empty": (instead("adapter", lambda path: path.mkdir()), REFUSED, "adapter_config.json"),
    "has no weights": (remove(WEIGHTS), REFUSED, "adapter_model.safetensors"),
    "has half of its weights": (cut(WEIGHTS, 0.5), REFUSED, "adapter_model.safetensors"),
    "has a flipped byte": (flip(WEIGHTS, 1), EITHER, ""),
    "has no JSON": (write(CONFIG, "x"), REFUSED, "adapter_config.json"),
    "has a list": (write(CONFIG, "[]"), REFUSED, "adapter_config.json"),
    "has a marker that is no JSON": (write(MARKER, "{"), REFUSED, "simcse_jax.json"),
    "has a fingerprint that is a number": (set_field(MARKER, "base_sha256", 3), REFUSED, "adapter of"),
    "has another base": (set_field(MARKER, "base_sha256", "0" * 64), REFUSED, "adapter of"),
    "names another base": (
        both(remove(MARKER), set_field(CONFIG, "base_model_name_or_path", "roberta-base")),
        REFUSED,
        "base_model_name_or_path",
    ),
    "names a base that is a list": (
        both(remove(MARKER), set_field(CONFIG, "base_model_name_or_path", ["model"])),
        REFUSED,
        "base_model_name_or_path",
    ),
    "has another type": (set_field(CONFIG, "peft_type", "IA3"), REFUSED, "peft_type"),
    "has no type": (drop_field(CONFIG, "peft_type"), REFUSED, "peft_type"),
    "has another rank": (set_field(CONFIG, "r", 3), REFUSED, "rank"),
    "has a rank that is a word": (set_field(CONFIG, "r", "two"), REFUSED, "rank"),
    "has another alpha": (set_field(CONFIG, "lora_alpha", 5), REFUSED, "alpha"),
    "changed its base": (set_field(CONFIG, "init_lora_weights", "pissa"), REFUSED, "init_lora_weights"),
    "has DoRA": (set_field(CONFIG, "use_dora", True), REFUSED, "use_dora"),
    "trained biases": (set_field(CONFIG, "bias", "lora_only"), REFUSED, "bias"),
    "has a rank for each map": (set_field(CONFIG, "rank_pattern", {"query": 4}), REFUSED, "rank_pattern"),
    "lacks a tensor": (tensors(lambda found: found.pop(min(found))), REFUSED, "missing"),
    "has a tensor more": (tensors(lambda found: found.update(x=np.zeros(3, np.float32))), REFUSED, "'x'"),
    "has a wider tensor": (first(lambda x: np.repeat(x, 2, axis=1)), REFUSED, "another model"),
    "has a tensor of integers": (first(lambda x: x.astype(np.int32)), REFUSED, "int32"),
    "has a NaN": (first(lambda x: x * np.nan), REFUSED, "not finite"),
    "has a tensor of no axis": (first(lambda x: np.float32(1)), REFUSED, "another model"),
}

FIELDS: dict[str, tuple[dict[str, object], str]] = {
    "a target that does not exist": ({"model__lora__rank": 2, "model__lora__targets": "quarry"}, "query"),
    "a target of another type": ({"model__lora__rank": 2, "model__lora__targets": "q_lin"}, "targets"),
    "an empty target": ({"model__lora__rank": 2, "model__lora__targets": "query,,value"}, "targets"),
    "a rank above the width": ({"model__lora__rank": 2**30}, "rank"),
    "an adapter without a rank": ({"model__lora__init_from": "adapter"}, "rank"),
    "more frozen layers than there are": ({"model__freeze__layers": 3}, "layers"),
    "nothing to train": ({"model__freeze__layers": 2, "model__freeze__embeddings": True}, "nothing to train"),
    "no layer left for LoRA": ({"model__freeze__layers": 2, "model__lora__rank": 2}, "LoRA"),
    "other targets than the adapter's": ({**OURS, "model__lora__targets": "key"}, "targets"),
    "fewer layers than the adapter's": ({**OURS, "model__freeze__layers": 1}, "is there"),
}


def cases() -> Iterator[Case]:
    inputs = ("model", TEXT, PAIRS, "adapter")
    arguments = train_arguments("run", **OURS)
    for damage, (make, end, names) in DAMAGES.items():
        yield Case("adapters", "train", damage, arguments, inputs, make, end, names, leaves=("run", "run/*"))
    for damage, (fields, names) in FIELDS.items():
        yield Case("adapters", "train", damage, train_arguments("run", **fields), inputs, names=names)
    # A model's name that is an adapter.
    yield Case(
        "adapters", "encode", "instead of a model", ["--model=adapter", f"--data={TEXT}", "--output=o.npy"], inputs
    )
    for damage, name in (("of no run", "model"), ("of a run without LoRA", "workdir")):
        more = ["--adapter", f"--workdir={name}", "--output=out"]
        yield Case("adapters", "export", damage, more, (name,), names=name)
