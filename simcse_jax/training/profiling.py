"""`--profile DIR`: a trace of a few training steps."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

from simcse_jax.host import progress
from simcse_jax.training.programs import Updates

SKIPPED = 2  # the first steps are slower
TRACED = 5
LAST_TRACED = SKIPPED + TRACED


@contextlib.contextmanager
def trace_steps(update: Updates, folder: Path | None, steps: int) -> Iterator[Callable[..., Any]]:
    """The update, with a trace of its third to seventh call, or of the last ones of fewer, but of at least one."""
    if folder is None:
        yield update
        return
    begin = min(SKIPPED, steps - 1)
    end = min(begin + TRACED, steps)
    calls, tracing = 0, False

    def stop() -> None:
        nonlocal tracing
        jax.profiler.stop_trace()
        tracing = False
        steps = "1 step" if calls == begin + 1 else f"{calls - begin} steps"
        xprof = f"`xprof --logdir {folder}` (pip install xprof) or TensorBoard"
        progress.write(f"{folder}: a trace of {steps}; open it with {xprof}, or its .trace.json.gz at ui.perfetto.dev")

    def update_traced(*args: Any) -> Any:
        nonlocal calls, tracing
        if calls == begin:
            jax.block_until_ready(args)  # otherwise earlier steps would be in the trace
            jax.profiler.start_trace(folder)
            tracing = True
        with jax.profiler.StepTraceAnnotation("train", step_num=args[0] + 1):
            output = update(*args)
        calls += 1
        if calls == end:
            jax.block_until_ready(output)
            stop()
        return output

    try:
        yield update_traced
    finally:
        if tracing:
            stop()
