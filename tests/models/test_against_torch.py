"""Parity with transformers' PyTorch models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import random_batch

from simcse_jax.models import huggingface, parameters, pretrained
from simcse_jax.models.tokenizer import Tokenizer

pytestmark = pytest.mark.slow
SENTENCES = ["A man is playing a guitar.", "Hello", "", "Grüße aus Köln 🎸", "word " * 60]


def hidden_states(model, ids, mask):
    graph, _ = huggingface.build(model.config, with_head=False)
    params = {name: value for name, value in model.params.items() if not name.startswith("head.")}
    return parameters.merge(graph, params).encoder(ids, mask)


def test_every_hidden_state_of_the_real_weights(minilm):
    torch = pytest.importorskip("torch")
    from transformers import BertModel

    model = pretrained.load(minilm)
    tokenizer = Tokenizer(model.folder, model.config)
    ids, mask = tokenizer.pad(tokenizer(SENTENCES, 64), 64)
    reference = BertModel.from_pretrained(model.folder, attn_implementation="eager").eval()
    with torch.no_grad():
        theirs = reference(torch.tensor(ids), torch.tensor(mask), output_hidden_states=True).hidden_states
    ours = hidden_states(model, ids, mask)
    assert len(ours) == len(theirs) == 7
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(mine)[mask > 0], other.numpy()[mask > 0], atol=1e-4)


def test_hidden_states_and_gradients_of_small_random_models(tiny_folder):
    torch = pytest.importorskip("torch")
    from transformers import AutoModel

    model = pretrained.load(str(tiny_folder))
    ids, mask = (array[:, 0] for array in random_batch(5, 16))
    ids = np.where(mask > 0, ids, model.config.pad_token_id)
    weight = np.random.default_rng(1).normal(size=(5, 16, 32)).astype(np.float32) * mask[:, :, None]

    reference = AutoModel.from_pretrained(tiny_folder, attn_implementation="eager").eval()
    output = reference(torch.tensor(ids), torch.tensor(mask), output_hidden_states=True)
    sum((state * torch.tensor(weight)).sum() for state in output.hidden_states).backward()
    theirs = {
        name: parameter.grad.numpy() for name, parameter in reference.named_parameters() if parameter.grad is not None
    }

    graph, _ = huggingface.build(model.config, with_head=False)

    def loss(params):
        states = parameters.merge(graph, params).encoder(ids, mask)
        return sum(jnp.sum(state * weight) for state in states), states

    (_, states), gradient = jax.value_and_grad(loss, has_aux=True)(jax.tree.map(jnp.asarray, model.params))
    for mine, other in zip(states, output.hidden_states, strict=True):
        np.testing.assert_allclose(np.asarray(mine)[mask > 0], other.detach().numpy()[mask > 0], atol=1e-4)
    ours = huggingface.to_tensors(gradient)
    assert set(theirs) == {name for name in ours if not name.startswith("pooler.")}
    for name, other in theirs.items():
        if name.endswith("key.bias"):  # softmax does not see it: its gradient is zero, and what is found is rounding
            assert np.abs(ours[name]).max() < 1e-4 and np.abs(other).max() < 1e-4
        else:
            assert np.abs(ours[name] - other).max() / np.abs(other).max() < 1e-3, name
