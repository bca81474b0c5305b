"""Losses and parameters next to those of a plain PyTorch loop: the same weights, the same batches, dropout 0."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import ROOT, random_batch
from support.against_torch import assert_same_gradient
from support.recorded import recorded, sketches, twice
from support.steps import INFO_NCE

from simcse_jax.data.batches import tokenize
from simcse_jax.data.examples import read_examples
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.devices.parts import distribute
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.huggingface.weight_names import to_tensors
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.views import Plan
from simcse_jax.training.recipe import Recipe
from simcse_jax.training.step import init_state, make_step

STEPS, BATCH, LENGTH, TEMPERATURE = 4, 8, 16, 0.05


def train_ours(model, ids, mask, rate, decay, clip, temperature=TEMPERATURE):
    graph, _ = build(model.config, with_head=False)
    scalars = {"learning_rate": rate, "weight_decay": decay, "max_grad_norm": clip, "total_steps": len(ids)}
    scalars |= dict.fromkeys(("dropout", "noise", "warmup"), 0.0) | {"epsilon": 1e-8}
    terms = {"weight": 1.0, "temperature": temperature, "hard_negative_weight": 1.0}
    settings = jax.tree.map(jnp.float32, {**scalars, "objective": {"info_nce": terms}}) | {"seed": jnp.uint32(0)}
    mesh = data_mesh(jax.devices()[:1])
    update = make_step(graph, Recipe("avg", False, Plan(ids.shape[2], "independent"), (INFO_NCE,)), mesh)
    params = {name: jnp.asarray(value) for name, value in model.params.items() if name.startswith("encoder.")}
    state, losses = distribute(init_state(params, settings), mesh), []
    for number in range(len(ids)):
        batch = {"input_ids": ids[number], "attention_mask": mask[number], "index": np.arange(BATCH, dtype=np.int32)}
        state, metrics = update(state, batch, settings)
        losses.append(float(metrics["loss"]))
    return losses, to_tensors(state.params, model.config)


def train_torch(model, ids, mask, rate, decay, clip, temperature=TEMPERATURE):
    import torch
    from transformers import AutoModel

    ids, mask = (torch.tensor(array, dtype=torch.long) for array in (ids, mask))
    layers = {"num_hidden_layers": model.config.num_layers}
    encoder = AutoModel.from_pretrained(model.folder, add_pooling_layer=False, **layers)
    encoder.eval()  # no dropout
    groups = {True: [], False: []}
    for parameter in encoder.parameters():
        groups[parameter.ndim > 1].append(parameter)
    decayed = [{"params": groups[is_matrix], "weight_decay": decay * is_matrix} for is_matrix in groups]
    optimizer, losses = torch.optim.AdamW(decayed, lr=rate), []
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / len(ids))
    for number in range(len(ids)):
        embeddings = []
        for column in range(ids.shape[2]):
            hidden = encoder(ids[number, :, column], mask[number, :, column]).last_hidden_state
            weight = mask[number, :, column, :, None]
            embeddings.append((hidden * weight).sum(1) / weight.sum(1))
        anchor, *others = (torch.nn.functional.normalize(e, dim=1) for e in embeddings)
        logits = torch.cat([anchor @ other.T for other in others], 1) / temperature
        loss = torch.nn.functional.cross_entropy(logits, torch.arange(BATCH))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters(), clip)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses, {name: value.numpy() for name, value in encoder.state_dict().items()}


@twice(pytest.mark.optimized)
def test_losses_and_parameters_of_a_tiny_model_follow_pytorch(tiny_bert, live):
    """With a rate and a decay that show in the parameters, and a norm that is clipped."""
    batches = [random_batch(BATCH, LENGTH, 3, seed=number) for number in range(STEPS)]
    given = (load(str(tiny_bert)), *map(np.stack, zip(*batches, strict=True)), 1e-3, 10.0, 0.5)

    def compute():
        losses, tensors = train_torch(*given)
        return {"loss": losses} | sketches(tensors)

    theirs = recorded("steps/adamw", compute, "torch", "transformers", live=live)
    losses, tensors = train_ours(*given)
    np.testing.assert_allclose(losses, theirs["loss"], rtol=1e-4)
    keys = {name for name in tensors if name.endswith("key.bias")}  # theirs move by rounding, ours do not
    ours, theirs = ({name: x for name, x in each.items() if name not in keys} for each in (tensors, theirs))
    assert_same_gradient(ours, theirs, bound=1e-4)
    start = to_tensors(given[0].params, given[0].config)
    assert len(keys) == 2 and all(np.array_equal(tensors[name], start[name]) for name in keys)


@pytest.mark.slow
@pytest.mark.optimized
def test_losses_and_parameters_of_real_weights_and_triplets_follow_pytorch(minilm):
    pytest.importorskip("torch")
    ours, theirs = train_both(load(minilm, 3), STEPS, 3, TEMPERATURE)
    assert max(np.abs(ours[name] - theirs[name]).max() for name in ours) < 1e-4


@pytest.mark.slow
@pytest.mark.optimized
@pytest.mark.parametrize(("columns", "temperature"), [(3, TEMPERATURE), (2, 0.5)], ids=["supervised", "unsupervised"])
def test_ten_steps_at_base_size_follow_pytorch(columns, temperature):
    """BASE_MODEL is a folder of 12 layers, such as `benchmarks.joined_package` makes. Equal views need a high τ."""
    pytest.importorskip("torch")
    if not (folder := os.environ.get("BASE_MODEL")):
        pytest.skip("BASE_MODEL is not set: a folder with weights of base size")
    train_both(load(folder), 10, columns, temperature)


def train_both(model, steps, columns, temperature):
    """With the pairs or triplets of `examples/everyday`; unsupervised, without dropout, both views are equal.

    Checks the losses, and returns the tensors of both after the last step.
    """
    examples = read_examples(str(ROOT / "examples" / "everyday" / "triplets.csv"))
    corpus, shape = tokenize(examples, Tokenizer(model.folder, model.config), LENGTH), (steps, BATCH, 3, LENGTH)
    batches = [x[: steps * BATCH].reshape(shape).astype(np.int32) for x in (corpus.input_ids, corpus.attention_mask)]
    chosen = [0, 1, 2] if columns == 3 else [0, 0]
    given = (model, *(x[:, :, chosen] for x in batches), 5e-5, 0.1, 1.0, temperature)
    (ours, our_tensors), (theirs, their_tensors) = (train(*given) for train in (train_ours, train_torch))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    return our_tensors, their_tensors
