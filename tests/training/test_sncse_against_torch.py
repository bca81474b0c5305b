import numpy as np
import pytest
from support.against_torch import assert_step_agrees, drawn_model, embedded, loss_and_gradient, module_of, similarities
from support.recorded import recorded, twice
from support.steps import BATCH, batch, recipe, settings, term

WEIGHT, LOWER, UPPER = 0.7, 0.02, 0.05  # of the tiny model's margins, some are below, some within, some above
THERE = np.array([1, 1, 0, 1, 1, 0, 1, 1], bool)


def their_step(params, data):
    import torch

    encoder, head = module_of(params)
    z1, z2, z3 = (embedded(encoder, head, data["input_ids"][:, c], data["attention_mask"][:, c]) for c in range(3))
    loss = torch.nn.functional.cross_entropy(similarities(z1, z2) / 0.05, torch.arange(BATCH))
    margins = (torch.cosine_similarity(z1, z3) - torch.cosine_similarity(z1, z2))[torch.tensor(THERE)]
    assert (margins > -LOWER).any() and (margins < -UPPER).any()
    loss = loss + WEIGHT * (torch.relu(margins + LOWER) + torch.relu(-margins - UPPER)).mean()
    return loss_and_gradient(loss, encoder, head)


@twice(pytest.mark.optimized)
def test_loss_and_gradients_of_a_step(live):
    graph, params, _ = drawn_model()
    options = (("similarity", "cosine"), ("symmetric", False), ("negatives", "positives"))
    terms = term("info_nce", options), term("bidirectional_margin")
    numbers = {"info_nce": {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}}
    numbers["bidirectional_margin"] = {"weight": WEIGHT, "lower": LOWER, "upper": UPPER}
    present = np.ones((BATCH, 3), bool)
    present[:, 2] = THERE
    data, chosen = batch(3) | {"present": present}, settings(objective=numbers, dropout=0.0)
    theirs = recorded("steps/sncse", lambda: their_step(params, data), "torch", "transformers", live=live)
    for devices, chunk_size in ((1, 0), (2, 3))[: 1 + live]:
        own = recipe(3, objectives=terms, chunk_size=chunk_size)
        assert_step_agrees(graph, params, own, data, chosen, theirs, devices)
