"""The update of every step of a run, in one program, or in two: the smaller one is enough for most batches."""

import time
from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import Mesh

from simcse_jax.data.corpora import AnyBatches
from simcse_jax.devices import processes
from simcse_jax.devices.flops import peak, product_flops
from simcse_jax.devices.mesh import split_over_examples
from simcse_jax.models.parameters import Params
from simcse_jax.models.platforms import tracing_for
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
        batches: AnyBatches,
        steps: int,
        *,
        unpad: bool,
        frozen: Params | None = None,
        recipes: Sequence[Recipe] = (),
    ):
        """Chooses the programs' sizes.

        Args:
          graph, recipe, mesh: see `make_step`.
          batches: of the run.
          steps: of the run.
          unpad: do not compute padding, if there is enough of it.
          frozen: parameters of the step that it does not train, on the devices.
          recipes: of each source, where a batch has rows of one alone; these differ in their columns.
        """
        self._sizes = batches.sizes(steps, mesh.size, recipe.chunk_size, unpad=unpad)
        self._listing = batches.listing(self._sizes)
        for line in self._listing:
            processes.say(line)
        own = recipes or [recipe]
        self._steps = [
            make_step(graph, own[source]._replace(most_tokens=size), mesh)
            for source, size in zip(self._sizes.sources, self._sizes.tokens, strict=True)
        ]
        self._frozen, self._mesh = frozen, mesh
        self._compiled: dict[int, jax.stages.Compiled] = {}
        self._at_peak: dict[int, float] = {}
        self._platform = mesh.devices.flat[0].platform
        self._peak = peak(mesh.devices.flat[0])

    def compile(self, step: int, state: TrainState, batch: Batch, settings: Settings) -> float:
        """Compiles the program that this step needs, if it is not compiled yet; returns the seconds that this took."""
        size = self._sizes.of(step)
        if size in self._compiled:
            return 0.0
        jax.block_until_ready(state)  # earlier work must not count as compiling
        started = time.perf_counter()
        by_example = split_over_examples(self._mesh)
        rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=by_example), batch)
        with tracing_for(self._platform):
            traced = self._steps[size].trace(state, rows, settings, self._frozen)
        self._compiled[size] = traced.lower().compile()
        named = "cuda" if self._platform == "gpu" else self._platform
        self._at_peak[size] = product_flops(traced.jaxpr, platform=named).total() / self._peak if self._peak else 0.0
        seconds = time.perf_counter() - started
        if self._listing:
            which = f"program {size + 1} of {len(self._steps)}"
        elif len(self._steps) == 1:
            which = "the step"
        else:
            which = f"the step for {('most', 'the longest', 'the last')[size]} batches"
        processes.say(f"compiled {which} in {seconds:.1f} s")
        return seconds

    @property
    def memory(self) -> int:
        """The bytes that the largest compiled program takes on a device."""
        found: list[Any] = [program.memory_analysis() for program in self._compiled.values()]
        return max(
            each.argument_size_in_bytes + each.output_size_in_bytes - each.alias_size_in_bytes + each.temp_size_in_bytes
            for each in found
        )

    def at_peak(self, step: int) -> float:
        """The seconds of a compiled step's matrix products at the device's peak; 0.0 where that is not known."""
        return self._at_peak[self._sizes.of(step)]

    def __call__(self, step: int, state: TrainState, batch: Batch, settings: Settings) -> tuple[TrainState, Metrics]:
        """Does update `step`, counted from 0, whose program is compiled."""
        return self._compiled[self._sizes.of(step)](state, batch, settings, self._frozen)
