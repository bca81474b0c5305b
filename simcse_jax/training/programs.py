"""The update of every step of a run, in one program, or in two: the smaller one is enough for most batches."""

import time

import jax
import numpy as np
from jax.sharding import Mesh

from simcse_jax.corpus.batches import PreparedBatches, StreamSizes
from simcse_jax.data.batches import Batches, Sizes
from simcse_jax.devices import processes
from simcse_jax.models.parameters import Params
from simcse_jax.models.sentence_encoder import Graph
from simcse_jax.runs.state import TrainState
from simcse_jax.training.loss import Recipe
from simcse_jax.training.rows import Batch, Settings
from simcse_jax.training.step import Metrics, make_step


class Updates:
    """`updates(step, state, batch, settings)` -> (state, metrics), by the program that the step's batch needs.

    The choice depends only on the config, the data and the step, so a resumed run computes the same as one that was not
    stopped (on other devices or in other chunks, up to the rounding of sums). Each program is compiled when it is first
    needed.
    """

    def __init__(
        self,
        graph: Graph,
        recipe: Recipe,
        mesh: Mesh,
        batches: Batches | PreparedBatches,
        steps: int,
        *,
        unpad: bool,
        frozen: Params | None = None,
    ):
        """Chooses the programs' sizes.

        Args:
          graph, recipe, mesh: see `make_step`.
          batches: of the run.
          steps: of the run.
          unpad: do not compute padding, if there is enough of it.
          frozen: parameters of the step that it does not train, on the devices.
        """
        self._sizes: Sizes | StreamSizes = Sizes(((),), np.zeros(1, np.int8))
        if unpad and steps:
            self._sizes = batches.sizes(steps, mesh.size, recipe.chunk_size)
        self._steps = [make_step(graph, recipe._replace(most_tokens=size), mesh) for size in self._sizes.tokens]
        self._frozen = frozen
        self._compiled: dict[int, jax.stages.Compiled] = {}

    def compile(self, step: int, state: TrainState, batch: Batch, settings: Settings) -> float:
        """Compiles the program that this step needs, if it is not compiled yet; returns the seconds that this took."""
        size = self._sizes.of(step)
        if size in self._compiled:
            return 0.0
        jax.block_until_ready(state)  # earlier work must not count as compiling
        started = time.perf_counter()
        self._compiled[size] = self._steps[size].lower(state, batch, settings, self._frozen).compile()
        seconds = time.perf_counter() - started
        which = (
            "the step" if len(self._steps) == 1 else f"the step for {('most', 'the longest', 'the last')[size]} batches"
        )
        processes.say(f"compiled {which} in {seconds:.1f} s")
        return seconds

    def __call__(self, step: int, state: TrainState, batch: Batch, settings: Settings) -> tuple[TrainState, Metrics]:
        """Does update `step`, counted from 0, whose program is compiled."""
        return self._compiled[self._sizes.of(step)](state, batch, settings, self._frozen)
