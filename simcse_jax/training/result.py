"""The result of a run: its best checkpoint, scored."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from simcse_jax.devices import processes
from simcse_jax.encoding.embedder import Embedder
from simcse_jax.evaluation.against import Comparison, compare, measure
from simcse_jax.evaluation.postprocess import transformed
from simcse_jax.evaluation.sts import aligned
from simcse_jax.host import streams
from simcse_jax.host.progress import doing
from simcse_jax.models.parameters import Params
from simcse_jax.runs.run_files import AGAINST_START, BEST_STEP
from simcse_jax.runs.state import TrainState
from simcse_jax.runs.workdir import Workdir
from simcse_jax.training import examples
from simcse_jax.training.inputs import Inputs
from simcse_jax.training.loop import Training

TRUNCATED = "truncated"  # in `result.json`


def finish(training: Training, state: TrainState) -> None:
    """Scores the run's best checkpoint, and writes its `result.json`."""
    result = report(training, *choose(training, state))
    if training.metrics is not None:
        training.metrics.finish(result)


def choose(training: Training, state: TrainState) -> tuple[int, Embedder, Embedder | None]:
    """The best step, and its model; also the base model's, where they are to be compared."""
    setup, checkpoints, folder = training.setup, training.checkpoints, training.folder

    def model(params: Params, tower: int = 0) -> Embedder:
        return setup.embed.with_params(setup.model(setup.gather_for_scoring(params), tower))

    intended = checkpoints.best
    best, params = checkpoints.restore_best(state.params)
    kept = [0] if setup.schedule.keep_start else []  # the start may have been better
    with processes.exit_together():
        if processes.is_first() and (best != intended or folder.scored_step() not in (None, best, *kept)):
            folder.drop_result()
    if setup.inputs.evaluation is None:  # nothing needs the model
        return best, setup.embed, None
    start, last = None, int(state.step)
    if kept and last:
        start = model(checkpoints.restore_params(0, state.params) if best else params, checkpoints.tower(0))
        if not best:  # none scored better: the last one is compared
            best, params = last, state.params
    return best, model(params, checkpoints.tower(best)), start


def report(training: Training, best: int, embed: Embedder, start: Embedder | None = None) -> dict[str, Any]:
    """Scores the best checkpoint on the test sets, writes `result.json` and prints the paper's tables.

    If `eval.extra` asks for more scores of a finished run, only the missing ones are computed. With a `start`, the
    checkpoint is compared with it, and the base model is kept unless the checkpoint is better.
    """
    inputs, folder, seed = training.setup.inputs, training.folder, training.setup.spec.seed
    if training.cross_fitted:
        result: dict[str, Any] = {BEST_STEP: best, AGAINST_START: training.cross_fitted.result | {"step": best}}
        if processes.is_first():
            folder.write_result(result)
        training.say(describe_comparison(training.cross_fitted.comparison))
        return result
    if inputs.evaluation is None:
        training.say(f"done; the last checkpoint (step {best}) is in {folder}")
        return {}
    before = scores_before(folder) if inputs.evaluation.extra else {}
    against: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    with doing():
        result = final_scores(inputs, embed, seed, before)
        if start is not None:
            first, last = (transformed(encode, inputs.evaluation.postprocess, seed) for encode in (start, embed))
            tasks, name = measure(inputs.evaluation.at_end, first, last)
            comparison = compare(tasks, name, seed)
            against = {AGAINST_START: comparison._asdict() | {"step": best}}
            if not comparison.is_better:
                best, result = 0, final_scores(inputs, start, seed, {})
            shown |= examples.moved(inputs.evaluation.at_end, tasks)
    if training.setup.shows_examples and training.setup.schedule.total:
        examples.update(folder.path, {**shown, "after": examples.cosines(inputs.evaluation.at_end, embed)})
    result |= {BEST_STEP: best} | training.patience.result | against
    if processes.is_first():
        folder.write_result(result)
    training.say(f"best checkpoint: step {best}")
    for table in inputs.evaluation.tables(result):
        training.say(table)
    if start is not None:
        lines = describe_comparison(comparison).splitlines()
        colour = streams.GREEN if comparison.is_better else streams.YELLOW
        gain = [streams.paint(line, colour, sys.stdout) for line in lines[-2:]]  # and the conclusion
        training.say("\n".join([*lines[:-2], *gain]))
    for size, numbers in result.get(TRUNCATED, {}).items():
        for table in inputs.evaluation.tables(numbers):
            training.say(f"the first {size} elements: {table}")
    return result


def describe_comparison(comparison: Comparison) -> str:
    """The comparison with the base model, as text."""
    before, after, low, high, measure = comparison
    numbers = [f"{before:.2f}", f"{after:.2f}", f"{after - before:+.2f}", f"{low:+.2f} to {high:+.2f}"]
    table = aligned([["before", "after", "change", "95% interval"], numbers])
    verdict = "training helped" if comparison.is_better else "no better, so the base model is kept"
    return f"before and after training ({measure}):\n{table}\n{verdict}"


def scores_before(folder: Workdir) -> dict[str, Any]:
    """What `result.json` has of the same model, as the first process sees it; {} if there is none."""
    with processes.exit_together():
        text = json.dumps(folder.read_result() or {}) if processes.is_first() else ""
    return json.loads(processes.gather(text)[0])


def final_scores(inputs: Inputs, embed: Embedder, seed: int, before: Mapping[str, Any]) -> dict[str, Any]:
    """The evaluation's contents of `result.json`; what a model had `before` stays if `eval.extra` asks for more.

    `truncated` has them for each size below the whole embedding's, at which objectives saw it.
    """
    everything = inputs.evaluation
    assert everything is not None

    def scores(embed: Embedder, before: Mapping[str, Any]) -> dict[str, Any]:
        evaluation = everything.restrict_to_missing(before)
        kept = before if evaluation is not everything else {}
        return {**kept, **evaluation.final_scores(lambda some: embed.with_progress(some, processes.is_first()), seed)}

    result = scores(embed, before)
    if inputs.sizes:
        smaller = result.get(TRUNCATED, {})
        result[TRUNCATED] = {
            str(size): scores(embed.truncated(size, normalized_first=False), smaller.get(str(size), {}))
            for size in inputs.sizes
        }
    return result
