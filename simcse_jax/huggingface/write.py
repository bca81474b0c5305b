"""Models written in Hugging Face format."""

import shutil
from pathlib import Path
from typing import Any

from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.tokenizer import FILES, MARKER, Tokenizer
from simcse_jax.storage import read_json, write_json
from simcse_jax.version import __version__


def write_encoder_files(
    model: Pretrained, tokenizer: Tokenizer, target: Path, pooler: str, has_head: bool, **fields: Any
) -> None:
    """Writes the encoder's `config.json`, its tokenizer, and the marker that tells the pooler and the head.

    `fields` are set in `config.json` beside those that it has.
    """
    config = read_json(model.folder / "config.json")
    config["num_hidden_layers"] = model.config.num_layers
    config.pop("torch_dtype", None)
    config["dtype"] = "float32"  # whatever the source was stored in: transformers obeys this field
    write_json(target / "config.json", config | fields)
    for name in FILES:
        if (model.folder / name).is_file():
            shutil.copyfile(model.folder / name, target / name)
    tokenizer.save(target / "tokenizer.json")
    write_json(target / MARKER, {"pooler": pooler, "head": has_head, "version": __version__})
