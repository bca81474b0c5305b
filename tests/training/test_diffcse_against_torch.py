"""DiffCSE as a whole next to the same networks of transformers and PyTorch: its loss and every gradient, dropout 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import CONFIGS
from support.steps import BATCH, batch, replaced_tokens_settings, replaced_tokens_step

from simcse_jax.devices.mesh import data_mesh
from simcse_jax.huggingface.weight_names import BERT_HEAD, to_tensors
from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.masking import gumbel, mask_tokens, token_keys
from simcse_jax.objectives.rows import Rows
from simcse_jax.objectives.views import REPLACING
from simcse_jax.training.loss import make_loss

pytestmark = pytest.mark.slow
WEIGHT = 0.5
BERT = EncoderConfig.from_hugging_face(CONFIGS["bert"], "test")


def tensors_of(params):
    torch = pytest.importorskip("torch")
    return {name: torch.tensor(value) for name, value in to_tensors(params, BERT).items()}


def their_loss(params, frozen, data, masked, drawn):
    """The loss, and the modules whose parameters have its gradient; the steps are those of DiffCSE's `cl_forward`."""
    torch = pytest.importorskip("torch")
    from transformers import BertConfig, BertForMaskedLM, BertModel

    config = BertConfig(**CONFIGS["bert"] | {"num_hidden_layers": 1}, attn_implementation="eager")
    encoder, discriminator = (BertModel(config, add_pooling_layer=False).eval() for _ in range(2))
    encoder.load_state_dict(tensors_of(parameters.sentence_encoder(params)), strict=False)
    discriminator.load_state_dict(tensors_of(parameters.subset(params, "discriminator.")), strict=False)
    generator = BertForMaskedLM(config).eval()
    weights = {f"bert.{name}": value for name, value in tensors_of(parameters.sentence_encoder(frozen)).items()}
    for name, value in parameters.subset(frozen, "language_model.").items():
        weights[BERT_HEAD[name]] = torch.tensor(np.array(value.T if name.endswith("kernel") else value))
    unknown = generator.load_state_dict(weights, strict=False)
    assert not unknown.unexpected_keys

    size = config.hidden_size
    projector = torch.nn.Sequential(
        torch.nn.Linear(size, 2 * size, bias=False),
        torch.nn.BatchNorm1d(2 * size),
        torch.nn.ReLU(),
        torch.nn.Linear(2 * size, size, bias=False),
        torch.nn.BatchNorm1d(size, affine=False),
    ).train()
    own = {name: torch.tensor(np.array(value)) for name, value in parameters.subset(params, "projector.").items()}
    projector[0].weight.data, projector[3].weight.data = own["layers.0.kernel"].T, own["layers.1.kernel"].T
    projector[1].weight.data, projector[1].bias.data = own["norms.0.scale"], own["norms.0.bias"]
    head = torch.nn.Linear(size, 2)
    found = parameters.subset(params, "replaced_token_detection.")
    head.weight.data, head.bias.data = torch.tensor(np.array(found["kernel"].T)), torch.tensor(found["bias"])

    for module in (encoder, discriminator, projector, head):
        module.double()  # so that the differences are ours
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
    least = torch.finfo(torch.float64).min
    hidden = discriminator.encoder(embedded, attention_mask=(1.0 - mask[:, None, None].double()) * least)[0]
    losses = torch.nn.functional.cross_entropy(
        head(hidden).reshape(-1, 2), replaced.long().reshape(-1), reduction="none"
    )
    detection = losses.reshape(mask.shape)[mask > 0].mean()
    first, second = torch.nn.functional.normalize(h, dim=1).reshape(2, BATCH, size)
    contrast = torch.nn.functional.cross_entropy(first @ second.T / 0.05, torch.arange(BATCH))
    return contrast + WEIGHT * detection, encoder, discriminator, projector, head


@pytest.mark.optimized
@pytest.mark.parametrize("reading", ["released", "paper"])
def test_loss_and_gradients_of_a_tiny_diffcse(reading):
    graph, params, frozen, recipe = replaced_tokens_step(reading=reading)
    params = {name: np.asarray(value) for name, value in params.items()}
    data, settings = batch(1), replaced_tokens_settings(WEIGHT, dropout=0.0)
    ids, mask = (np.concatenate([data[name][:, 0]] * 2) for name in ("input_ids", "attention_mask"))
    keys = Rows(data, jnp.int32(0), settings, ()).keys([REPLACING, REPLACING + 1]).reshape(-1)
    masking = recipe.masking._asdict()
    masked, selected = mask_tokens(keys, ids, mask, vocab_size=40, probability=0.3, **masking)
    noise = gumbel(*(part.ravel() for part in token_keys(keys, ids.shape[1])), 40).reshape(*ids.shape, 40)
    drawn = (noise, selected) if reading == "paper" else None
    loss, encoder, discriminator, projector, head = their_loss(params, frozen, data, masked, drawn)
    loss.backward()

    function = jax.jit(make_loss(graph, recipe, data_mesh(jax.devices()[:1])))
    (ours, _), gradient = function(params, jnp.int32(0), data, settings, frozen)
    assert float(ours) == pytest.approx(loss.item(), rel=1e-5)

    def same(found, expected, name):
        expected = expected.numpy()
        assert np.abs(np.asarray(found) - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1e-2), name

    for prefix, model in (("", encoder), ("discriminator.", discriminator)):
        own = {
            name: value for name, value in parameters.subset(gradient, prefix).items() if name.startswith("encoder.")
        }
        theirs = dict(model.named_parameters())
        for name, value in to_tensors(own, BERT).items():
            same(value, theirs[name].grad, f"{prefix}{name}")
    modules = {"layers.0": projector[0], "norms.0": projector[1], "layers.1": projector[3]}
    for name, value in parameters.subset(gradient, "projector.").items():
        module, _, kind = name.rpartition(".")
        expected = modules[module].bias.grad if kind == "bias" else modules[module].weight.grad
        same(value, expected.T if kind == "kernel" else expected, name)
    same(gradient["replaced_token_detection.kernel"], head.weight.grad.T, "kernel")
    same(gradient["replaced_token_detection.bias"], head.bias.grad, "bias")
