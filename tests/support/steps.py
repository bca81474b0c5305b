"""Shared by the tests of a step: its settings, recipes and batches."""

import jax
import jax.numpy as jnp
import numpy as np

from simcse_jax.objectives.registry import Term
from simcse_jax.training.loss import Recipe
from simcse_jax.training.views import PLAIN, plan
from support import random_batch

BATCH = 8


def settings(**changes):
    terms = {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}
    scalars = {"learning_rate": 5e-5, "weight_decay": 0.0, "max_grad_norm": 1.0, "total_steps": 20, "dropout": 0.1}
    scalars |= {"noise": 0.1, "cutoff": 0.2, "positive_dropout": 0.3, "epsilon": 1e-8, "warmup": 0.0}
    scalars |= {"objective": {"info_nce": terms}} | changes
    return jax.tree.map(jnp.float32, scalars) | {"seed": jnp.uint32(3)}


INFO_NCE = Term("info_nce", (("similarity", "cosine"), ("symmetric", False)))


def recipe(
    columns,
    positive="independent",
    negative=None,
    objectives=(INFO_NCE,),
    two_towers=False,
    inputs=PLAIN,
    **changes,
):
    views = plan(columns, positive, negative, samples=2, two_towers=two_towers, inputs=inputs)
    return Recipe("cls", True, *views, objectives)._replace(**changes)


def batch(columns, seed=0):
    ids, mask = random_batch(BATCH, 16, columns, seed)
    return {"input_ids": ids, "attention_mask": mask, "index": np.arange(BATCH, dtype=np.int32)}
