"""The tiny model's sentences in transformers and PyTorch, to compare whole steps with."""

import numpy as np
import pytest

from simcse_jax.huggingface.weight_names import to_tensors
from simcse_jax.models.config import EncoderConfig
from support import CONFIGS

BERT = EncoderConfig.from_hugging_face(CONFIGS["bert"], "test")


def module_of(params):
    """Their encoder of one layer and the head, with the parameters of ours, in float64: the differences are ours."""
    torch = pytest.importorskip("torch")
    from transformers import BertConfig, BertModel

    config = BertConfig(**CONFIGS["bert"] | {"num_hidden_layers": 1}, attn_implementation="eager")
    encoder = BertModel(config, add_pooling_layer=False).eval()
    tensors = {name: torch.tensor(np.array(value)) for name, value in to_tensors(dict(params), BERT).items()}
    encoder.load_state_dict(tensors, strict=False)
    head = torch.nn.Linear(config.hidden_size, config.hidden_size)
    head.weight.data, head.bias.data = (torch.tensor(np.array(params[f"head.{name}"])) for name in ("kernel", "bias"))
    head.weight.data = head.weight.data.T.contiguous()
    return encoder.double(), head.double()


def embedded(encoder, head, ids, mask):
    """[CLS] after the head, without dropout."""
    torch = pytest.importorskip("torch")
    ids, mask = (torch.tensor(np.array(part)).long() for part in (ids, mask))
    return torch.tanh(head(encoder(ids, mask).last_hidden_state[:, 0]))


def similarities(rows, columns):
    """The cosine of each row with each column."""
    torch = pytest.importorskip("torch")
    return torch.nn.functional.cosine_similarity(rows[:, None], columns[None], dim=-1)


def assert_same_gradient(gradient, encoder, head):
    """Ours, by name, is theirs, which `backward` has left in the modules."""
    theirs = {name: value.grad.numpy() for name, value in encoder.named_parameters()}
    found = to_tensors({name: value for name, value in gradient.items() if name.startswith("encoder.")}, BERT)
    found |= {"weight": gradient["head.kernel"].T, "bias": gradient["head.bias"]}
    theirs |= {name: value.grad.numpy() for name, value in head.named_parameters()}
    assert theirs.keys() == found.keys()
    for name, value in found.items():
        limit = 1e-5 * max(np.abs(theirs[name]).max(), 1e-2)
        assert np.abs(np.asarray(value) - theirs[name]).max() <= limit, name
