"""Damaged adapters of PEFT's, adapters of other models, and parts of an encoder that do not exist."""

from collections.abc import Callable, Iterator

import numpy as np
from hostile.case import EITHER, PAIRS, TEXT, Case, Reader
from hostile.damages import Make, both, change_tensors, cut, flip, instead, remove, write
from hostile.json_damages import set_field
from hostile.seeds import train_arguments

KIND = "adapters"
CONFIG, WEIGHTS = "adapter/adapter_config.json", "adapter/adapter_model.safetensors"
MARKER, BASE = "adapter/simcse_jax.json", "base_model_name_or_path"
RANK = {"model__lora__rank": 2, "model__lora__alpha": 4.0}
OURS = {**RANK, "model__lora__init_from": "adapter"}


def first(value: Callable[[np.ndarray], np.ndarray]) -> Make:
    """Changes one tensor."""
    changed = lambda found: {min(found): np.ascontiguousarray(value(found[min(found)]))}  # noqa: E731
    return change_tensors(WEIGHTS, lambda found: found.update(changed(found)))


DAMAGES: dict[str, tuple[Make, str]] = {  # what is refused, and what the line names
    "is a file": (instead("adapter", lambda path: path.write_text("x")), "adapter"),
    "has no weights": (remove(WEIGHTS), "adapter_model.safetensors"),
    "has half of its weights": (cut(WEIGHTS, 0.5), "adapter_model.safetensors"),
    "has a marker that is no JSON": (write(MARKER, "{"), "simcse_jax.json"),
    "has another base": (set_field(MARKER, "base_sha256", "0" * 64), "adapter of"),
    "names a base that is a list": (both(remove(MARKER), set_field(CONFIG, BASE, ["model"])), BASE),
    "lacks a tensor": (change_tensors(WEIGHTS, lambda found: found.pop(min(found))), "missing"),
    "has a wider tensor": (first(lambda x: np.repeat(x, 2, axis=1)), "another model"),
    "has a NaN": (first(lambda x: x * np.nan), "not finite"),
}
FIELDS: dict[str, tuple[dict[str, object], str]] = {
    "a target that does not exist": ({**RANK, "model__lora__targets": "quarry"}, "query"),
    "an adapter without a rank": ({"model__lora__init_from": "adapter"}, "rank"),
    "more frozen layers than there are": ({"model__freeze__layers": 3}, "layers"),
    "nothing to train": ({"model__freeze__layers": 2, "model__freeze__embeddings": True}, "nothing to train"),
    "other targets than the adapter's": ({**OURS, "model__lora__targets": "key"}, "targets"),
}


def cases() -> Iterator[Case]:
    def reader(**fields: object) -> Reader:
        inputs = ["model", TEXT, PAIRS, *(["adapter"] if "model__lora__init_from" in fields else [])]
        return Reader("train", train_arguments("run", **fields), inputs, leaves=("run", "run/*"))

    for damage, (make, names) in DAMAGES.items():
        yield reader(**OURS).case(KIND, damage, make, names=names)
    yield reader(**OURS).case(KIND, "has a flipped byte", flip(WEIGHTS, 1), EITHER)
    for damage, (fields, names) in FIELDS.items():
        yield reader(**fields).case(KIND, damage, names=names)
    encode = Reader("encode", ["--model=adapter", f"--data={TEXT}", "--output=o.npy"], ["model", TEXT, "adapter"])
    yield encode.case(KIND, "instead of a model")
    for damage, name in (("of no run", "model"), ("of a run without LoRA", "workdir")):
        export = Reader("export", ["--adapter", f"--workdir={name}", "--output=out"], [name])
        yield export.case(KIND, damage, names=name)
