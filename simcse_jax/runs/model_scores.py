"""The scores in the card of an exported model: tables in Markdown, from a run's `run.json` and `result.json`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcse_jax.evaluation.sts import TITLES
from simcse_jax.evaluation.tasks import DEVELOPMENT, MEASURES, RETRIEVAL, TASKS
from simcse_jax.huggingface.public_names import public_value

PAIRS_IN = (".tsv", ".csv", ".txt")  # files of graded pairs, by the ends of their names


def task_scores(result: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """The scores of a `result.json` by task, without its other fields."""
    found = {task: values for task, values in (result or {}).items() if isinstance(values, dict)}
    return {task: values for task, values in found.items() if "spearman" in values and "pairs" in values}


def postprocessing(config: Mapping[str, Any]) -> str:
    """How the embeddings were changed before they were scored; empty: not at all. An export does not contain it."""
    return config.get("eval", {}).get("postprocess", "")


def is_test(config: Mapping[str, Any], task: str) -> bool:
    """Whether a task's pairs are a published test set. Otherwise they are those that the checkpoint was chosen by."""
    evaluation = config.get("eval", {})
    return task in TASKS and task in evaluation.get("tasks", ()) and not _is_file(evaluation)


def _is_file(evaluation: Mapping[str, Any]) -> bool:
    """Whether `eval.data` was a file of pairs, by its name: on this machine it may not be there."""
    return Path(evaluation.get("data", "")).suffix.lower() in PAIRS_IN


def chosen_on(config: Mapping[str, Any]) -> str:
    """The data that chose the checkpoint."""
    evaluation = config.get("eval", {})
    name = evaluation.get("development", "stsb")
    if name == RETRIEVAL:
        return f"the judgements `{evaluation.get('retrieval', {}).get('development', 'dev')}` of retrieval"
    if _is_file(evaluation):
        return "a file of graded pairs"
    task = DEVELOPMENT[name]
    return f"the development set of {TITLES.get(task, task)}"


def scores(run: Mapping[str, Any], result: Mapping[str, Any] | None) -> str:
    """The tables of similarity and retrieval, each with its protocol."""
    parts = [part for part in (similarity(run, result), truncated(result), retrieval(run, result)) if part]
    return "\n\n".join(parts) or "The run has no scores: none was evaluated, or it has not ended."


def truncated(result: Mapping[str, Any] | None) -> str:
    """The table of similarity at smaller sizes; empty if there are no such scores."""
    by_size = (result or {}).get("truncated", {})
    found = {size: task_scores(values) for size, values in by_size.items() if isinstance(values, dict)}
    found = {size: values for size, values in found.items() if values}
    if not found:
        return ""
    tasks = list(next(iter(found.values())))
    rows = [(size, *(f"{values[task]['spearman']:.2f}" for task in tasks)) for size, values in found.items()]
    titles = ("elements", *(TITLES.get(task, task) for task in tasks))
    return "The same of the first elements of the embeddings alone:\n\n" + table(titles, rows)


def retrieval(run: Mapping[str, Any], result: Mapping[str, Any] | None) -> str:
    """The table of retrieval and its protocol; empty if there are no such scores."""
    found = result.get("retrieval") if result and "retrieval_average" in result else None
    if not found:
        return ""
    first, *others = found.values()
    names = [name for name in first if name in MEASURES and all(name in values for values in others)]
    rows = [
        (task, *(f"{values[name]:.2f}" for name in names), values["queries"], _documents(values))
        for task, values in found.items()
    ]
    fields = run["config"].get("eval", {})
    here = fields.get("retrieval", {})
    protocol = f"Retrieval by cosine, × 100, as trec_eval computes it, on the judgements `{here.get('split', 'test')}`"
    if (rounded := here.get("storage", "float32")) != "float32":
        protocol += f", with documents' embeddings in {rounded}"
    if fields.get("development") == RETRIEVAL and here.get("development", "dev") == here.get("split", "test"):
        protocol += ". These are the judgements that the checkpoint was chosen by, not a test set."
    else:
        protocol += f"; the checkpoint was chosen on {chosen_on(run['config'])}."
    return protocol + "\n\n" + table(("data", *(MEASURES[name] for name in names), "queries", "documents"), rows)


def _documents(values: Mapping[str, Any]) -> str:
    """Their number; of a sample, which is easier, that of the whole corpus as well."""
    kept, whole = values["documents"], values.get("corpus", values["documents"])
    return f"{kept} of {whole}" if kept < whole else str(kept)


def similarity(run: Mapping[str, Any], result: Mapping[str, Any] | None) -> str:
    """The table of similarity and its protocol; empty if there are no such scores."""
    found = task_scores(result)
    if not found:
        return ""
    config = run["config"]
    test = all(is_test(config, task) for task in found)
    rows = [(TITLES.get(task, task), f"{values['spearman']:.2f}", values["pairs"]) for task, values in found.items()]
    if len(found) == len(TASKS):
        rows.append(("mean", f"{sum(values['spearman'] for values in found.values()) / len(found):.2f}", ""))
    protocol = (
        "Spearman's rank correlation × 100 between cosine similarity and the human ratings, over all pairs of a task "
        'together ("all" of SimCSE, Appendix B), nothing trained on top. '
    )
    if test:
        protocol += f"SentEval's test sets; the checkpoint was chosen on {chosen_on(config)}."
    elif config.get("eval", {}).get("development") == RETRIEVAL:
        protocol += f"No published test set; the checkpoint was chosen on {chosen_on(config)}."
    else:
        protocol += "These are the pairs that the checkpoint was chosen by, not a test set."
    if method := postprocessing(config):
        fitted = config["eval"].get("postprocess_data", "")
        fitted = public_value("eval.postprocess_data", fitted, run.get("hub"))
        protocol += f" The embeddings went through {method} first, fit on `{fitted}`; this model does not contain it."
    return protocol + "\n\n" + table(("task", "Spearman × 100", "pairs"), rows)


def table(titles: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """A table in Markdown."""
    lines = [titles, ("---",) * len(titles), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", r"\|") for cell in line) + " |" for line in lines)
