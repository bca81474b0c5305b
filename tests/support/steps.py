"""Shared by the tests of a step: its settings, recipes and batches."""

import jax
import jax.numpy as jnp
import numpy as np

from simcse_jax.choices import HEADS
from simcse_jax.models.masking import Masking
from simcse_jax.models.projector import Projector
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.objective import Term
from simcse_jax.objectives.registry import OBJECTIVES, load_loss
from simcse_jax.objectives.views import Plan
from simcse_jax.runs.state import ModelSpec, pretrained_shapes, split_shapes
from simcse_jax.training.recipe import Recipe
from support import random_batch, random_model

BATCH = 8


def settings(**changes):
    terms = {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}
    scalars = {"learning_rate": 5e-5, "weight_decay": 0.0, "max_grad_norm": 1.0, "total_steps": 20, "dropout": 0.1}
    scalars |= {"noise": 0.1, "cutoff": 0.2, "positive_dropout": 0.3, "epsilon": 1e-8, "warmup": 0.0}
    scalars |= {"objective": {"info_nce": terms}} | changes
    return jax.tree.map(jnp.float32, scalars) | {"seed": jnp.uint32(3)}


def term(name, options=(), projected=False):
    return Term(load_loss(OBJECTIVES[name]), options, projected)


INFO_NCE = term("info_nce", (("similarity", "cosine"), ("symmetric", False)))


def recipe(columns, positive="independent", negative="off", objectives=(INFO_NCE,), changed=(), **changes):
    """`changed` are fields of `Plan`, as are two_towers and positives."""
    of_plan = {name: changes.pop(name) for name in ("two_towers", "positives") if name in changes} | dict(changed)
    return Recipe("cls", True, Plan(columns, positive, negative, samples=2, **of_plan), objectives)._replace(**changes)


def named(rows):
    """Of (V, B, D), anchors, positives and kinds of hard negatives."""
    return {"anchor": rows[0], "positive": rows[1]} | ({"hard_negatives": rows[2:]} if len(rows) > 2 else {})


def alone(views, **fields):
    """What an objective sees on a single device that has the whole batch."""
    whole = dict.fromkeys(("gather", "psum"), lambda x: x) | {"artificial": lambda *shape: jnp.zeros(shape)}
    rows = next(iter(views.values())).shape[-2]
    return Embedded(views, **whole | {"own": jnp.arange(rows), "params": {}} | fields)


def batch(columns, seed=0):
    ids, mask = random_batch(BATCH, 16, columns, seed)
    return {"input_ids": ids, "attention_mask": mask, "index": np.arange(BATCH, dtype=np.int32)}


def mixed_batch():
    """Four triplets among three sentences, each its own positive, and a pair."""
    data = batch(3)
    present = np.ones((BATCH, 3), bool)
    for row in (1, 4, 6):
        present[row, 1:] = False
        for array in (data["input_ids"], data["attention_mask"]):
            array[row, 1] = array[row, 0]
    present[2, 2] = False
    for row in (1, 2, 4, 6):  # the empty sentence: two tokens, whatever they are
        data["attention_mask"][row, 2] = np.arange(16) < 2
    return data | {"present": present}


def replaced_tokens_step(projector=True, dtype=jnp.float32, reading="released", **changes):
    """A tiny DiffCSE: (graph, params, frozen, recipe); the generator has other weights than the encoder."""
    graph, params, config = random_model(num_layers=1, with_head=False, dtype=dtype)
    masking = Masking(mask_id=3, special_ids=(0, 1, 2, 3))
    own = Projector(("2D", "D")) if projector else None
    objective = {"info_nce": {"weight": 1.0}, "replaced_token_detection": {"weight": 1.0}}
    spec = ModelSpec(head=HEADS["none"], projector=own, objectives=objective)
    generator = np.random.default_rng(0)

    def drawn(shapes):
        return {
            name: np.float32(name.endswith("scale")) + generator.normal(0, 0.2, shape.shape).astype(np.float32)
            for name, shape in shapes.items()
        }

    params = jax.tree.map(jnp.asarray, drawn(split_shapes(config, spec)[0]) | params)
    frozen = drawn(pretrained_shapes(config))
    detection = term("replaced_token_detection", (("reading", reading),), projector)
    networks = (("generator", graph), ("discriminator", graph))
    changes = {"projector": own, "networks": networks, "masking": masking, "use_head": False} | changes
    return graph, params, frozen, recipe(1, objectives=(INFO_NCE._replace(projected=projector), detection), **changes)


def replaced_tokens_settings(weight=0.5, **changes):
    numbers = {"info_nce": {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}}
    numbers |= {"replaced_token_detection": {"weight": weight, "masking_rate": 0.3}}
    return settings(objective=numbers, **changes)
