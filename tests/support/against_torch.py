"""The tiny model's sentences in transformers and PyTorch, to compare whole steps with."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.huggingface.weight_names import to_tensors
from simcse_jax.models.config import EncoderConfig
from simcse_jax.training.loss import make_loss
from support import CONFIGS, random_model

from .recorded import sketch, sketches

BERT = EncoderConfig.from_hugging_face(CONFIGS["bert"], "test")


def drawn(params, std=0.15):
    """Parameters of these shapes of NumPy's generator, the same whatever JAX draws."""
    generator = np.random.default_rng(0)
    return {
        name: jnp.asarray(name.endswith("scale") + generator.normal(0, std, params[name].shape), jnp.float32)
        for name in sorted(params)
    }


def drawn_model():
    """(graph, params, config) of a tiny BERT of one layer with a head."""
    graph, params, config = random_model(num_layers=1)
    return graph, drawn(params), config


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
    torch = pytest.importorskip("torch")
    return torch.nn.functional.cosine_similarity(rows[:, None], columns[None], dim=-1)


def loss_and_gradient(loss, encoder, head):
    """What is recorded of a step: the loss, and sketches of its gradient by the names in files."""
    loss.backward()
    parameters = [*encoder.named_parameters(), *((f"head.{name}", value) for name, value in head.named_parameters())]
    return {"loss": loss.item()} | sketches({name: value.grad.numpy() for name, value in parameters})


def assert_same_step(loss, gradient, theirs):
    """Our loss and gradient, by our names, are those that `loss_and_gradient` has given."""
    assert float(loss) == pytest.approx(float(theirs["loss"]), rel=1e-5)
    found = to_tensors({name: value for name, value in gradient.items() if name.startswith("encoder.")}, BERT)
    found |= {"head.weight": gradient["head.kernel"].T, "head.bias": gradient["head.bias"]}
    assert_same_gradient(found, theirs)


def assert_step_agrees(graph, params, recipe, data, numbers, theirs, devices=1):
    function = jax.jit(make_loss(graph, recipe, data_mesh(jax.devices()[:devices])))
    (loss, _), gradient = function(params, jnp.int32(0), data, numbers)
    assert_same_step(loss, gradient, theirs)


def assert_same_gradient(found, theirs, bound=1e-5):
    """Arrays by name are those that `sketches` has given, within this part of their largest number."""
    assert {name for name in theirs if not name.startswith(("max of", "loss"))} == found.keys()
    for name, value in found.items():
        limit = bound * max(theirs[f"max of {name}"], 1e-2)
        assert np.abs(sketch(value) - theirs[name]).max() <= limit, name
