"""Sentences as an unsupervised run trains on them: each of them twice, under two masks."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from simcse_jax.devices.mesh import fetch, place
from simcse_jax.encoding.embedder import Embedder
from simcse_jax.models import parameters
from simcse_jax.models.parameters import Arrays, Params
from simcse_jax.objectives.chunks import in_chunks
from simcse_jax.objectives.rows import Batch, StepSettings, encode_views
from simcse_jax.objectives.views import flatten_views
from simcse_jax.training.loss import make_rows
from simcse_jax.training.recipe import Recipe

CHUNK = 64  # sentences that a device encodes at a time

Pairs = tuple[Float[np.ndarray, "N D"], Float[np.ndarray, "N D"]]


def make_dropout_pairs(
    embed: Embedder, recipe: Recipe, settings: StepSettings, sentences: Sequence[str], max_length: int
) -> Callable[[Arrays], Pairs]:
    """Builds pairs(params) -> (anchors, positives) of these N sentences, as the recipe's objectives see them.

    Masks, changes and noise are those of step 0, in every call. LoRA's own dropout is left out, as `params` are those
    of `Setup.model`.
    """
    views = flatten_views({name: recipe.plan.pair()[name] for name in ("anchor", "positive")})
    numbers = jax.tree.map(np.asarray, {name: value for name, value in settings.items() if name != "lora_dropout"})
    sharding = embed.sharding
    assert sharding is not None  # a run's
    rows = embed.tokenizer(sentences, max_length)
    rows += rows[:1] * (-len(rows) % sharding.num_devices)
    arrays = *embed.tokenizer.pad(rows, max_length), np.arange(len(rows), dtype=np.int32)

    def encode(
        params: Params, ids: Int[jax.Array, "B T"], mask: Int[jax.Array, "B T"], index: Int[jax.Array, " B"]
    ) -> Float[jax.Array, "B 2 D"]:
        towers = recipe.towers({0: parameters.merge(embed.graph, params)})
        constants = jax.tree.map(jnp.asarray, numbers)

        def encode_rows(batch: Batch) -> Float[jax.Array, "R 2 D"]:
            return encode_views(towers, make_rows(recipe, params, jnp.int32(0), constants, batch), views)[0]

        with jax.default_matmul_precision("highest"):
            return in_chunks(
                encode_rows, CHUNK, {"input_ids": ids[:, None], "attention_mask": mask[:, None], "index": index}
            )

    program = embed.by_rows(encode, sharding)

    def pairs(params: Arrays) -> Pairs:
        placed = place(lambda part: tuple(array[part] for array in arrays), len(rows), sharding)
        both = fetch(program(parameters.sentence_encoder(params), *placed))[: len(sentences)]
        return both[:, 0], both[:, 1]

    return pairs
