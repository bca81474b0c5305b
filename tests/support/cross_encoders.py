"""Tiny cross-encoders: as transformers writes them, and BERT's without PyTorch."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from support import CONFIGS, write_model
from support.layouts import MODERN, write_tokenizer

# A tokenizer for each model type, as `layouts.write_tokenizer` names it.
TOKENIZERS = {"bert": "word_piece", "roberta": "byte_level", "xlm-roberta": "XLMRobertaTokenizer"}
TOKENIZERS |= {"modernbert": "modernbert", "electra": "word_piece", "ernie": "word_piece", "distilbert": "word_piece"}
TOKENIZERS |= {"camembert": "CamembertTokenizer"}


def write_theirs(folder: Path, kind: str, **changes) -> Path:
    """A random cross-encoder of a type as transformers writes one."""
    folder.mkdir(parents=True)
    words = write_tokenizer(folder, TOKENIZERS[kind])
    fields = CONFIGS[kind] | {"vocab_size": words, "num_labels": 1} | (MODERN if kind == "modernbert" else {}) | changes
    return save_random("AutoModelForSequenceClassification", fields, folder)


def save_random(auto: str, fields: dict[str, object], folder: Path) -> Path:
    """A random model of a class of transformers, as it writes one; its weights make the network nonlinear."""
    torch = pytest.importorskip("torch")
    import transformers

    torch.manual_seed(0)
    own = {name: value for name, value in fields.items() if name != "architectures"}
    model = getattr(transformers, auto).from_config(transformers.AutoConfig.for_model(**own))
    with torch.no_grad():
        for name, value in model.named_parameters():
            is_scale = name.lower().endswith("norm.weight") and fields["model_type"] != "gemma3_text"
            is_last = auto != "AutoModel" and len(value) == model.num_labels  # scores that differ
            value.normal_(std=1.0 if is_last else 0.15).add_(float(is_scale))  # Gemma's scales differ from one
    model.save_pretrained(folder)
    return folder


def write_cross_encoder(folder: Path, labels: int = 1, **changes) -> Path:
    folder.mkdir(parents=True)
    words = write_tokenizer(folder, "word_piece")
    tokenizer = {path: path.read_bytes() for path in folder.glob("*token*.json")}
    architectures = ["BertForSequenceClassification"]
    write_model(folder, "bert", **{"vocab_size": words, "architectures": architectures} | changes)
    for path, content in tokenizer.items():
        path.write_bytes(content)
    generator = np.random.default_rng(5)
    own = {"classifier.weight": (labels, 32), "classifier.bias": (labels,)}
    tensors = {name: generator.normal(0, 0.5, shape).astype(np.float32) for name, shape in own.items()}
    file = folder / "model.safetensors"
    save_file(load_file(file) | tensors, file, metadata={"format": "pt"})
    return folder
