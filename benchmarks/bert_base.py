"""A BERT-base-sized model with random weights: `python -m benchmarks.bert_base FOLDER TOKENIZER_FOLDER`."""

import shutil
import sys
from pathlib import Path

from simcse_jax.huggingface.tokenizer import FILES


def write(folder: Path, tokenizer: Path) -> None:
    """Writes it in Hugging Face format: the weights of seed 0 and the files of another BERT's tokenizer."""
    import torch
    from transformers import BertConfig, BertModel
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(0)
    BertModel(BertConfig(), add_pooling_layer=False).save_pretrained(folder)
    for name in FILES:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, folder / name)


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
