"""The update of every step, in one program, or in two: the smaller one is enough for most batches."""

import time
from collections.abc import Sequence
from typing import Any

import jax

from simcse_jax.data.corpora import AnyBatches, largest
from simcse_jax.devices import processes
from simcse_jax.devices.flops import peak, product_flops
from simcse_jax.host.progress import shown_meanwhile
from simcse_jax.models.platforms import tracing_for
from simcse_jax.objectives.rows import Batch, StepSettings
from simcse_jax.runs.state import TrainState
from simcse_jax.training.setup import Setup
from simcse_jax.training.step import StepMetrics, make_step


class Updates:
    """`updates(step, state, batch, settings)` -> (state, metrics), by the program that the step's batch needs.

    The choice depends only on the config, the data and the step, so a resumed run computes the same as one that was not
    stopped (on other devices or in other chunks, up to the rounding of sums). Each program is compiled when it is first
    needed.
    """

    def __init__(self, setup: Setup, batches: AnyBatches, parts: Sequence[AnyBatches] = ()):
        """Chooses the programs' sizes by the batches.

        With batches of `parts` of the rows too, one program is large enough for all steps of either.
        """
        self._setup = setup
        steps, devices = setup.schedule.total, setup.mesh.size
        sizes = [each.sizes(steps, devices, setup.recipe.chunk_size, unpad=setup.unpad) for each in (batches, *parts)]
        self._sizes = largest(sizes) if parts else sizes[0]
        for line in batches.repeated():
            processes.say(line)
        self._steps = [
            make_step(setup.graph, setup.recipes[source]._replace(most_tokens=size), setup.mesh)
            for source, size in zip(self._sizes.sources, self._sizes.tokens, strict=True)
        ]
        self._compiled: dict[int, jax.stages.Compiled] = {}
        self._at_peak: dict[int, float] = {}

    def compile(self, step: int, state: TrainState, batch: Batch, settings: StepSettings) -> float:
        """Compiles the program that this step needs, if it is not compiled yet; returns the seconds that this took."""
        size = self._sizes.of(step)
        if size in self._compiled:
            return 0.0
        jax.block_until_ready(state)  # earlier work must not count as compiling
        started = time.perf_counter()
        device, by_example = self._setup.mesh.devices.flat[0], self._setup.by_example
        rows = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=by_example), batch)
        with shown_meanwhile("compiling …", processes.is_first()), tracing_for(device.platform):
            traced = self._steps[size].trace(state, rows, settings, self._setup.frozen)
            self._compiled[size] = traced.lower().compile()
        named, most = "cuda" if device.platform == "gpu" else device.platform, peak(device)
        self._at_peak[size] = product_flops(traced.jaxpr, platform=named).total() / most if most else 0.0
        seconds = time.perf_counter() - started
        if any(self._sizes.sources) or len(self._steps) > 3:  # batches of one source each
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
        analyses: list[Any] = [program.memory_analysis() for program in self._compiled.values()]
        return max(
            analysis.argument_size_in_bytes
            + analysis.output_size_in_bytes
            - analysis.alias_size_in_bytes
            + analysis.temp_size_in_bytes
            for analysis in analyses
        )

    def at_peak(self, step: int) -> float:
        """The seconds of a compiled step's matrix products at the device's peak; 0.0 where that is not known."""
        return self._at_peak[self._sizes.of(step)]

    def __call__(
        self, step: int, state: TrainState, batch: Batch, settings: StepSettings
    ) -> tuple[TrainState, StepMetrics]:
        """Does update `step`, counted from 0, whose program is compiled."""
        return self._compiled[self._sizes.of(step)](state, batch, settings, self._setup.frozen)
