import numpy as np
import pytest
from support.against_torch import assert_step_agrees, drawn_model, embedded, loss_and_gradient, module_of, similarities
from support.checks import random
from support.recorded import recorded, twice
from support.steps import BATCH, INFO_NCE, batch, recipe, settings, term

from simcse_jax.data.corpora import TeacherEmbeddings

TEACHERS, SHARE = (random(2 * BATCH, 24), random(2 * BATCH, 48, seed=1)), 1 / 3
BETA, GAMMA, TAU_T = 0.7, 0.3, 0.1


def divergence(p, q, released):
    """As the public code has it: with `clamp` around log M, or as it is meant, around M."""
    import torch

    kl = torch.nn.KLDivLoss(reduction="batchmean", log_target=True)
    p, q = p.clamp(min=1e-7), q.clamp(min=1e-7)
    middle = ((p + q) / 2).log()
    middle = middle.clamp(min=1e-7) if released else middle
    return (kl(middle, p.log()) + kl(middle, q.log())) / 2


def loss_of_lists(scores, taught, method, released):
    import torch

    if method == "listnet":
        if released:
            scores, taught = (each.clone().fill_diagonal_(-torch.inf) for each in (scores, taught))
        found = torch.softmax(taught / TAU_T, dim=1) * torch.log_softmax(scores, dim=1)
        return -found.nansum() / len(scores)
    ordered = scores.gather(1, taught.argsort(dim=1, descending=True))
    return sum((torch.logsumexp(ordered[:, k:], 1) - ordered[:, k]).mean() for k in range(len(scores)))


def their_step(params, data, method, reading):
    import torch

    encoder, head = module_of(params)
    z1, z2 = (embedded(encoder, head, data["input_ids"][:, c], data["attention_mask"][:, c]) for c in (0, 1))
    scores, back = similarities(z1, z2) / 0.05, similarities(z2, z1) / 0.05
    first, second = (torch.tensor(rows).double().reshape(BATCH, 2, -1) for rows in TEACHERS)
    taught = SHARE * similarities(first[:, 0], first[:, 1]) + (1 - SHARE) * similarities(second[:, 0], second[:, 1])
    released = reading == "released"
    loss = torch.nn.functional.cross_entropy(scores, torch.arange(BATCH))
    loss = loss + BETA * divergence(scores.softmax(dim=1), back.softmax(dim=1), released)
    return loss_and_gradient(loss + GAMMA * loss_of_lists(scores, taught, method, released), encoder, head)


@twice(pytest.mark.optimized)
@pytest.mark.parametrize(("method", "reading"), [("listmle", "paper"), ("listnet", "released")])
def test_loss_and_gradients_of_a_step(method, reading, live):
    graph, params, _ = drawn_model()
    consistency = term("ranking_consistency", (("reading", reading),))
    distillation = term("ranking_distillation", (("method", method), ("reading", reading)))
    numbers = {"info_nce": {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}}
    numbers["ranking_consistency"] = {"weight": BETA, "temperature": 0.05}
    numbers["ranking_distillation"] = {"weight": GAMMA, "temperature": 0.05, "teacher_temperature": TAU_T}
    places = np.arange(2 * BATCH, dtype=np.int32).reshape(BATCH, 2)
    data = batch(2) | {"teacher": TeacherEmbeddings(TEACHERS[0], places, "", TEACHERS[1], SHARE).of(places)}
    own = recipe(2, objectives=(INFO_NCE, consistency, distillation))
    name, compute = f"steps/rank_cse_{reading}", lambda: their_step(params, data, method, reading)
    theirs = recorded(name, compute, "torch", "transformers", live=live)
    assert_step_agrees(graph, params, own, data, settings(objective=numbers, dropout=0.0), theirs)
