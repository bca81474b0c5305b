"""Cross-fitting (`data.folds`): whether training helps, judged by models that never saw the rows that judge them.

For each fold of the rows (`held_out.Folds`) a model is trained on all others with the run's own settings, and compared
with the base model on the fold. The mean of the folds' differences has an interval (`evaluation.against`), which
decides whether a model is trained on all rows. What is known of a finished fold is kept in `folds.json`.
"""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.data.corpora import AnyBatches
from simcse_jax.devices import processes
from simcse_jax.devices.preemption import Preemption
from simcse_jax.encoding.embedder import Embedder, NotFinite
from simcse_jax.errors import UserError
from simcse_jax.evaluation.against import Comparison, Paired, compare, measure
from simcse_jax.evaluation.evaluator import Embed
from simcse_jax.host.progress import Progress, doing
from simcse_jax.host.storage import Folder, is_remote, read_json, write_atomically
from simcse_jax.objectives.rows import StepSettings
from simcse_jax.runs import report
from simcse_jax.runs.run_files import FOLDS_FILE
from simcse_jax.training import examples
from simcse_jax.training.programs import Updates
from simcse_jax.training.setup import Setup
from simcse_jax.training.speed import Steps


class CrossFitted(NamedTuple):
    """What the folds' models say."""

    comparison: Comparison
    folds: list[tuple[float, float]]  # the scores of each before and after
    rows: int  # of all folds

    @property
    def result(self) -> dict[str, Any]:
        """As `result.json` has it."""
        return {**self.comparison._asdict(), "folds": self.folds, "rows": self.rows}


def cross_fit(
    setup: Setup,
    updates: Updates,
    batches: Sequence[AnyBatches],
    settings: Sequence[StepSettings],
    folder: Folder,
    preemption: Preemption,
) -> CrossFitted:
    """Trains and compares the folds' models, all with the programs of `updates`.

    Args:
      batches, settings: of each fold's model (`Setup.fold_batches`).
      folder: of the run; folds that are finished there are not trained again.
      preemption: learns what is saved.

    Raises:
      UserError: when a model's parameters are no longer finite.
      Preempted: for SIGTERM; the folds that are finished are saved.
    """
    assert setup.inputs.folds is not None
    evaluators = setup.inputs.folds.evaluators
    done, name = _read(folder)

    def embedder(params: Any) -> Embedder:
        return setup.embed.with_params(setup.model(setup.gather_for_scoring(params)))

    def judge(number: int) -> tuple[Paired, str]:
        model = embedder(_train(setup, updates, batches[number], settings[number], preemption))
        try:
            (paired,), name = measure([evaluators[number]], start, model.with_progress)
            if number == 0 and setup.shows_examples:
                shown = examples.before(evaluators[:1], start)
                examples.update(folder, {**shown, "after": examples.cosines(evaluators[:1], model)})
        except NotFinite as error:
            rate = "Start again in another workdir with a lower train.learning_rate"
            raise UserError(f"fold {number + 1}: {error}. {rate}") from None
        return paired, name

    start = _remembering(lambda: embedder(setup.state().params))
    for number in range(len(done), len(evaluators)):
        with doing(f"fold {number + 1} of {len(evaluators)}"):
            paired, name = judge(number)
        done.append(paired)
        with processes.exit_together():
            if processes.is_first():
                _write(folder, done, name)
                if setup.shows_examples:
                    report.write(folder)
        saved = f"fold {number + 1} of {len(evaluators)}"
        preemption.saved(saved)
        before, after = paired.all_rows
        processes.say(f"{saved}: {name} {before:.2f} before, {after:.2f} after")
    if setup.shows_examples:
        examples.update(folder, examples.moved(evaluators, done))
    comparison = compare(done, f"{name}, mean of {len(done)} folds", setup.spec.seed)
    scores = [(round(before, 4), round(after, 4)) for before, after in (paired.all_rows for paired in done)]
    return CrossFitted(comparison, scores, len(setup.inputs.folds.of))


def say_tries(folder: Folder, fingerprints: Mapping[str, str]) -> None:
    """Says how many other runs there judged the same start on the same rows: each may keep a gain that is none."""
    judged = {name: fingerprints[name] for name in ("data.train", "model.init_from")}
    tries = 0
    if processes.is_first() and not is_remote(folder):
        for path in folder.parent.glob(f"*/{FOLDS_FILE}"):
            with contextlib.suppress(UserError):
                run = read_json(path.parent / "run.json")
                tries += path.parent != folder and judged.items() <= run.get("sha256", {}).items()
    if tries:
        runs = "another run" if tries == 1 else f"{tries} other runs"
        processes.say(
            f"{runs} in {folder.parent} tried the same rows and start: of three tries of data that teach nothing one "
            "is kept in up to 10% of cases, so decide by the first, or by other data (--eval)"
        )


def _train(setup: Setup, updates: Updates, batches: AnyBatches, settings: StepSettings, preemption: Preemption) -> Any:
    """The parameters after all steps."""
    state, total = setup.state(), int(settings["total_steps"])
    with Progress(total, "steps", shown=processes.is_first()) as bar:
        steps = Steps(bar)
        for step in range(total):
            batch = setup.read(batches, step)
            bar.skip(updates.compile(0, state, batch, settings))
            state, metrics = updates(0, state, batch, settings)
            steps.add(metrics["loss"])
            preemption.pass_unsaved()
        steps.wait()
    return state.params


def _remembering(make: Callable[[], Embedder]) -> Embed:
    """A model that embeds a text once, since what the folds search is the same; it is made when it is needed."""
    known: dict[str, np.ndarray] = {}

    def encode(sentences: Sequence[str]) -> np.ndarray:
        new = [text for text in dict.fromkeys(sentences) if text not in known]
        if new:
            known.update(zip(new, make().with_progress(new, processes.is_first()), strict=True))
        return np.stack([known[text] for text in sentences])

    return encode


def _read(folder: Folder) -> tuple[list[Paired], str]:
    """The folds that are finished, as the first process sees them, and the name of the measure."""
    with processes.exit_together():
        path = folder / FOLDS_FILE
        text = json.dumps(read_json(path)) if processes.is_first() and path.is_file() else "{}"
    found = json.loads(processes.gather(text)[0])
    return read_paired(found), found.get("measure", "")


def read_paired(found: Mapping[str, Any]) -> list[Paired]:
    """The folds that are finished, of the contents of `folds.json`."""
    return [Paired(*(part and np.array(part) for part in fold)) for fold in found.get("folds", [])]


def _write(folder: Folder, done: Sequence[Paired], name: str) -> None:
    folds = [[None if part is None else part.tolist() for part in paired] for paired in done]
    write_atomically(folder / FOLDS_FILE, json.dumps({"measure": name, "folds": folds}) + "\n")
