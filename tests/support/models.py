import json
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np
from safetensors.numpy import load_file, save_file

from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.weight_names import head_tensors
from simcse_jax.models.config import EncoderConfig, Module
from simcse_jax.models.language_model import fresh_head
from simcse_jax.models.modules import PREFIX, shapes
from support import assert_arrays


def edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def add_mask_token(folder: Path, token: str = "[MASK]") -> Path:
    """Gives a tiny model's tokenizer a mask token, which the loss of a language model needs."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    number = len(tokenizer["model"]["vocab"])
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [*tokenizer["added_tokens"], {"id": number, "content": token, "special": True, **flags}]
    vocabulary = tokenizer["model"]["vocab"] | {token: number}
    edit_json(folder / "tokenizer.json", added_tokens=added, model=tokenizer["model"] | {"vocab": vocabulary})
    edit_json(folder / "tokenizer_config.json", mask_token=token)
    return folder


def edit_tensors(folder: Path, change: Callable[[dict], dict]) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({k: np.ascontiguousarray(v) for k, v in change(tensors).items()}, folder / "model.safetensors")


def add_language_model(folder: Path, seed: int = 1) -> Path:
    """Gives a tiny BERT's folder the head of a language model."""
    config = EncoderConfig.from_hugging_face(json.loads((folder / "config.json").read_text()), "test")
    tensors = head_tensors(fresh_head(config, jax.random.key(seed)), "bert")
    edit_tensors(folder, lambda own: own | tensors)
    return folder


def same(left: Pretrained, right: Pretrained) -> None:
    assert set(left.params) == set(right.params)
    assert_arrays(right.params, left.params)


def drawn_modules(modules: Sequence[Module]) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)
    return {
        f"{PREFIX}{number}.{name}": generator.normal(0, 0.3, shape).astype(np.float32)
        for number, module in enumerate(modules)
        for name, shape in shapes(module).items()
    }
