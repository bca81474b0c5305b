"""DiffCSE as a whole next to the same networks of transformers and PyTorch: its loss and every gradient, dropout 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import CONFIGS
from support.against_torch import BERT, assert_same_gradient, drawn
from support.recorded import recorded, sketches
from support.steps import BATCH, batch, replaced_tokens_settings, replaced_tokens_step

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.huggingface.weight_names import BERT_HEAD, to_tensors
from simcse_jax.models import parameters
from simcse_jax.models.masking import gumbel, mask_tokens, token_keys
from simcse_jax.objectives.rows import Rows
from simcse_jax.objectives.views import REPLACING
from simcse_jax.training.loss import make_loss

WEIGHT = 0.5
ENCODERS = ("", "discriminator.")
# The projector's and the detection's head's parameters, by the names of their modules.
OWN = {"projector.layers.0.kernel": "projector.0.weight", "projector.layers.1.kernel": "projector.3.weight"}
OWN |= {"projector.norms.0.scale": "projector.1.weight", "projector.norms.0.bias": "projector.1.bias"}
OWN |= {"replaced_token_detection.kernel": "head.weight", "replaced_token_detection.bias": "head.bias"}
LIVE = [pytest.param(each, True, marks=[pytest.mark.slow, pytest.mark.optimized]) for each in ("paper", "released")]


def by_their_names(arrays):
    """Our parameters, or their gradients, as the modules have them."""
    found = {theirs: np.array(arrays[own].T if own.endswith("kernel") else arrays[own]) for own, theirs in OWN.items()}
    for prefix in ENCODERS:
        parts = {name: x for name, x in parameters.subset(arrays, prefix).items() if name.startswith("encoder.")}
        found |= {f"{prefix}{name}": np.array(value) for name, value in to_tensors(parts, BERT).items()}
    return found


def their_step(params, frozen, data, masked, drawn):
    """The loss and the gradient; the steps are those of DiffCSE's `cl_forward`."""
    import torch
    from transformers import BertConfig, BertForMaskedLM, BertModel

    config = BertConfig(**CONFIGS["bert"] | {"num_hidden_layers": 1}, attn_implementation="eager")
    size = config.hidden_size
    encoder, discriminator = (BertModel(config, add_pooling_layer=False).eval() for _ in range(2))
    first, second = torch.nn.Linear(size, 2 * size, bias=False), torch.nn.Linear(2 * size, size, bias=False)
    norms = torch.nn.BatchNorm1d(2 * size), torch.nn.BatchNorm1d(size, affine=False)
    projector = torch.nn.Sequential(first, norms[0], torch.nn.ReLU(), second, norms[1]).train()
    head = torch.nn.Linear(size, 2)
    modules = {"": encoder, "discriminator.": discriminator, "projector.": projector, "head.": head}
    given = {name: torch.tensor(value) for name, value in by_their_names(params).items()}
    for prefix, module in modules.items():
        own = parameters.subset(given, prefix)
        unknown = module.load_state_dict({name: own[name] for name in own if name in module.state_dict()}, strict=False)
        assert not [name for name in unknown.missing_keys if "running" not in name and "num_batches" not in name]
        module.double()  # so that the differences are ours
    generator = BertForMaskedLM(config).eval()
    own = to_tensors(parameters.sentence_encoder(frozen), BERT)
    weights = {f"bert.{name}": torch.tensor(np.array(value)) for name, value in own.items()}
    for name, value in parameters.subset(frozen, "language_model.").items():
        weights[BERT_HEAD[name]] = torch.tensor(np.array(value.T if name.endswith("kernel") else value))
    assert not generator.load_state_dict(weights, strict=False).unexpected_keys
    ids, mask = (torch.tensor(np.repeat(data[name][:, 0][None], 2, axis=0)) for name in ("input_ids", "attention_mask"))
    ids, mask = ids.reshape(2 * BATCH, -1).long(), mask.reshape(2 * BATCH, -1)
    h = projector(encoder(ids, mask).last_hidden_state[:, 0])
    with torch.no_grad():
        scores = generator.double()(torch.tensor(np.array(masked)), mask).logits
    if drawn is None:
        shown = scores.argmax(-1)
        shown[:, 0] = ids[:, 0]
    else:  # the largest sum of score and noise, at the masked positions
        noise, selected = (torch.tensor(np.array(part)) for part in drawn)
        shown = torch.where(selected, (scores + noise).argmax(-1), ids)
    replaced = (shown != ids) & (mask > 0)
    assert 10 < replaced.sum() < (mask > 0).sum()
    embedded = discriminator.embeddings(shown * mask)
    embedded = torch.cat([h[:, None], embedded[:, 1:]], dim=1)
    unseen = (1.0 - mask[:, None, None].double()) * torch.finfo(torch.float64).min
    hidden = discriminator.encoder(embedded, attention_mask=unseen)[0]
    cross_entropy = torch.nn.functional.cross_entropy
    losses = cross_entropy(head(hidden).reshape(-1, 2), replaced.long().reshape(-1), reduction="none")
    one, two = torch.nn.functional.normalize(h, dim=1).reshape(2, BATCH, size)
    contrast = cross_entropy(one @ two.T / 0.05, torch.arange(BATCH))
    loss = contrast + WEIGHT * losses.reshape(mask.shape)[mask > 0].mean()
    loss.backward()
    named = [(prefix + name, x) for prefix, module in modules.items() for name, x in module.named_parameters()]
    return {"loss": loss.item()} | sketches({name: x.grad.numpy() for name, x in named if x.grad is not None})


@pytest.mark.parametrize(("reading", "live"), [("paper", False), *LIVE])
def test_loss_and_gradients_of_a_tiny_diffcse(reading, live):
    graph, params, frozen, recipe = replaced_tokens_step(reading=reading)
    params, data, settings = drawn(params, 0.2), batch(1), replaced_tokens_settings(WEIGHT, dropout=0.0)
    ids, mask = (np.concatenate([data[name][:, 0]] * 2) for name in ("input_ids", "attention_mask"))
    keys = Rows(data, jnp.int32(0), settings, ()).keys([REPLACING, REPLACING + 1]).reshape(-1)
    masked, selected = mask_tokens(keys, ids, mask, vocab_size=40, probability=0.3, **recipe.masking._asdict())
    noise = gumbel(*(part.ravel() for part in token_keys(keys, ids.shape[1])), 40).reshape(*ids.shape, 40)
    noisy = (noise, selected) if reading == "paper" else None
    compute = lambda: their_step(params, frozen, data, masked, noisy)  # noqa: E731
    theirs = recorded(f"steps/diffcse_{reading}", compute, "torch", "transformers", live=live)
    function = jax.jit(make_loss(graph, recipe, data_mesh(jax.devices()[:1])))
    (ours, _), gradient = function(params, jnp.int32(0), data, settings, frozen)
    assert float(ours) == pytest.approx(float(theirs["loss"]), rel=1e-5)
    assert_same_gradient(by_their_names(gradient), theirs)
