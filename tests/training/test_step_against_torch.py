"""Each loss next to that of a plain PyTorch loop: the same weights, the same batches, dropout 0."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import MINILM, ROOT
from support.steps import term

from simcse_jax.data.batches import tokenize
from simcse_jax.data.examples import read_examples
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.devices.parts import distribute
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.huggingface.weight_names import to_tensors
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.views import Plan
from simcse_jax.training.loss import Recipe
from simcse_jax.training.step import init_state, make_step

pytestmark = pytest.mark.slow
STEPS, BATCH, LENGTH = 20, 16, 16
RATE, DECAY, CLIP, TEMPERATURE = 5e-5, 0.1, 1.0, 0.05


@pytest.fixture(scope="module")
def batches(minilm):
    """20 batches of real triplets: token ids and masks, (STEPS, BATCH, 3, LENGTH)."""
    model = load(minilm, 3)
    examples = read_examples(str(ROOT / "examples" / "everyday" / "triplets.csv"))
    corpus = tokenize(examples, Tokenizer(model.folder, model.config), LENGTH)
    shape = (STEPS, BATCH, 3, LENGTH)
    return [part[: STEPS * BATCH].reshape(shape).astype(np.int32) for part in (corpus.input_ids, corpus.attention_mask)]


def train_ours(folder, batches):
    ids, mask = batches
    model = load(MINILM, 3)
    graph, _ = build(model.config, with_head=False)
    scalars = {
        "learning_rate": RATE,
        "weight_decay": DECAY,
        "max_grad_norm": CLIP,
        "total_steps": STEPS,
        "dropout": 0.0,
        "noise": 0.0,
        "epsilon": 1e-8,
        "warmup": 0.0,
    }
    terms = {"weight": 1.0, "temperature": TEMPERATURE, "hard_negative_weight": 1.0}
    settings = jax.tree.map(jnp.float32, {**scalars, "objective": {"info_nce": terms}}) | {"seed": jnp.uint32(0)}
    mesh = data_mesh(jax.devices()[:1])
    info_nce = term("info_nce", (("similarity", "cosine"), ("symmetric", False)))
    recipe = Recipe("avg", False, Plan(3, "independent"), (info_nce,))
    update = make_step(graph, recipe, mesh)
    state = distribute(init_state(jax.tree.map(jnp.asarray, model.params), settings), mesh)
    losses = []
    for number in range(STEPS):
        batch = {"input_ids": ids[number], "attention_mask": mask[number], "index": np.arange(BATCH, dtype=np.int32)}
        state, metrics = update(state, batch, settings)
        losses.append(float(metrics["loss"]))
    return losses, to_tensors(state.params, model.config)


def train_torch(folder, batches):
    torch = pytest.importorskip("torch")
    from transformers import BertModel

    ids, mask = (torch.tensor(array, dtype=torch.long) for array in batches)
    model = BertModel.from_pretrained(folder, add_pooling_layer=False, num_hidden_layers=3)
    model.eval()  # no dropout
    groups = {True: [], False: []}
    for parameter in model.parameters():
        groups[parameter.ndim > 1].append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": groups[True], "weight_decay": DECAY}, {"params": groups[False], "weight_decay": 0.0}], lr=RATE
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / STEPS)
    losses = []
    for number in range(STEPS):
        embeddings = []
        for column in range(3):
            hidden = model(ids[number, :, column], mask[number, :, column]).last_hidden_state
            weight = mask[number, :, column, :, None]
            embeddings.append((hidden * weight).sum(1) / weight.sum(1))
        anchor, positive, negative = (torch.nn.functional.normalize(e, dim=1) for e in embeddings)
        logits = torch.cat([anchor @ positive.T, anchor @ negative.T], 1) / TEMPERATURE
        loss = torch.nn.functional.cross_entropy(logits, torch.arange(BATCH))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses, {name: value.numpy() for name, value in model.state_dict().items()}


@pytest.mark.optimized
def test_losses_and_parameters_follow_pytorch(minilm, batches):
    folder = resolve(minilm)
    ours, our_tensors = train_ours(folder, batches)
    theirs, their_tensors = train_torch(folder, batches)
    print("largest relative difference of a loss", np.max(np.abs(np.array(ours) / np.array(theirs) - 1)))
    differences = {name: np.abs(our_tensors[name] - their_tensors[name]).max() for name in our_tensors}
    print("largest difference of a parameter", max(differences.items(), key=lambda item: item[1]))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)
    assert np.mean(theirs[-5:]) < np.mean(theirs[:5])
    assert max(differences.values()) < 1e-4
