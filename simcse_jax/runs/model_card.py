"""The README.md of an exported model: its kind, how to load it, its scores, its recipe; front matter for the hub.

A card is made from the workdir (`run.json`, `result.json`), and its licence from the card of the model that training
started from. Of files and folders of the machine it gives only the base names; names on a hub and of packages are given
in full.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from simcse_jax.choices import DEVELOPMENT, MASK_TOKEN, MEASURES, RETRIEVAL, TASKS
from simcse_jax.config.fields import default_config, flatten, scoring_pooler
from simcse_jax.errors import UserError
from simcse_jax.evaluation.sts import TITLES
from simcse_jax.host.storage import local_path
from simcse_jax.huggingface.hub import split_name
from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.module_folders import AVERAGED
from simcse_jax.huggingface.public_names import is_from_hub, public_value, sources
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.huggingface.sentence_transformers import describe
from simcse_jax.huggingface.weight_names import NAMES
from simcse_jax.models.config import SIMILARITIES
from simcse_jax.models.model_types import ROTARY
from simcse_jax.models.pooling import FIRST_TOKEN
from simcse_jax.runs.run_files import AGAINST_START, BEST_STEP, FREE, plain

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

# The names of these test sets in the Massive Text Embedding Benchmark, whose SICK-R is of all splits together.
HUB_DATA_SETS = {
    **{f"STS{year}": f"mteb/sts{year}-sts" for year in range(12, 17)},
    "STSBenchmark": "mteb/stsbenchmark-sts",
}
LICENSE_FIELDS = ("license", "license_name", "license_link")  # of a front matter
TAGS = ["sentence-transformers", "sentence-similarity", "feature-extraction", "simcse", "simcse_jax"]
SENTENCES = 'sentences = ["A man plays a guitar.", "Someone makes music.", "It rains."]'
POOLING = {
    "cls": "embeddings = states[-1][:, 0]  # of the first token",
    "cls_before_pooler": "embeddings = states[-1][:, 0]  # of the first token",
    "avg": "embeddings = (states[-1] * mask).sum(1) / mask.sum(1)  # of the last layer",
    "avg_top2": "embeddings = ((states[-2] + states[-1]) / 2 * mask).sum(1) / mask.sum(1)  # of the last two layers",
    "avg_first_last": "embeddings = ((states[1] + states[-1]) / 2 * mask).sum(1) / mask.sum(1)  # first and last layer",
    "avg_static_last": "embeddings = ((states[0] + states[-1]) / 2 * mask).sum(1) / mask.sum(1)  # layers 0 and last",
    "avg_sqrt": "embeddings = (states[-1] * mask).sum(1) / mask.sum(1).sqrt()  # of the last layer",
    "avg_weighted": "weights = mask * mask.cumsum(1)\n"
    "    embeddings = (states[-1] * weights).sum(1) / weights.sum(1)  # of the last layer",
    "last": "embeddings = states[-1][torch.arange(len(mask)), mask.sum((1, 2)).long() - 1]  # of the last token",
    "max": 'embeddings = states[-1].masked_fill(mask == 0, float("-inf")).amax(1)  # of the last layer',
    "mask_token": 'mask = mask * (batch["input_ids"] == tokenizer.mask_token_id).unsqueeze(-1)\n'
    "    embeddings = (states[-1] * mask).sum(1) / mask.sum(1)  # of the mask token",
}
# By the similarities of `models.config`.
COMPARED = dict(zip(SIMILARITIES, ("cosine", "dot product", "Euclidean distance", "Manhattan distance"), strict=True))
TEMPLATE = Path(__file__).with_suffix(".md")
PAIRS_IN = (".tsv", ".csv", ".txt")  # files of graded pairs, by the ends of their names


def model_card(
    model: Pretrained,
    run: Mapping[str, Any],
    result: Mapping[str, Any] | None,
    name: str,
    revision: str | None = None,
    user_fields: Mapping[str, Any] = MappingProxyType({}),
    step: int | None = None,
) -> str:
    """The whole file, from the template `model_card.md`.

    Args:
      model: of the run.
      run: the contents of `run.json`.
      result: the contents of `result.json`; None where nothing was scored.
      name: the name to load it by: OWNER/NAME on the hub, or a folder's base name.
      revision: the hub's branch, None for the main one.
      user_fields: fields of the front matter that override what the run knows (`card_fields`).
      step: of the checkpoint; None for the best one, which is the one that the run scored.
    """
    from huggingface_hub import ModelCard

    config, hub = run["config"], run["hub"]
    result = (result if step is None else None) or {}
    size = truncated_size(model)
    scored = result.get("truncated", {}).get(str(size)) if size else result
    if "license" not in user_fields:
        user_fields = {**read_license(config["model"]["init_from"]), **user_fields}
    terms = {name: term["weight"] for name, term in config["objective"].items() if term["weight"]}
    card = ModelCard.from_template(
        front_matter(run, scored, name, user_fields),
        template_path=str(TEMPLATE),
        **{"title": name.rpartition("/")[2], "step": step, "run": run, "config": config, "model": model},
        encoder=model.config,
        size=size,
        compared=COMPARED[model.settings.similarity],
        modules=describe(model.config.modules) if model.config.modules else "",
        trained=bool(config["train"]["max_steps"] or config["train"]["epochs"]),
        base=public_value("model.init_from", config["model"]["init_from"], hub),
        data=public_value("data.train", config["data"]["train"], hub),
        loss=" + ".join(f"{weight:g} · `{name}`" for name, weight in terms.items()),
        pooler=scoring_pooler(config),
        changed=[(f"`{field}`", f"`{value}`" if value else "(none)") for field, value in changed_fields(run).items()],
        **code_of(name, revision, model),
        **scores_of(run, result),
        is_size_scored=bool(task_scores(scored)),
    )
    return card.content.strip() + "\n"


def truncated_size(model: Pretrained) -> int:
    """The elements that the model's embeddings keep, if these are not all; else 0."""
    size = model.settings.truncate_dim or 0
    return size if size < model.config.sentence_size else 0


def read_license(base: str) -> dict[str, str]:
    """The licence in the card of a model, as fields of a front matter; empty where no card here has one.

    Only files of this machine are read: a folder's, a package's, or those that the hub's client has kept.
    """
    from huggingface_hub import try_to_load_from_cache

    card: Any = None
    if base.startswith("package:") or local_path(base).is_dir():
        with contextlib.suppress(UserError):  # the package has been removed
            card = resolve(base) / "README.md"
    elif (hub_name := split_name(base)) is not None:
        card = try_to_load_from_cache(hub_name[0], "README.md", revision=hub_name[1])
    fields = read_front_matter(card)
    license_fields = {name: fields[name] for name in LICENSE_FIELDS if isinstance(fields.get(name), str)}
    if not license_fields.get("license_link", "https://").startswith("https://"):
        del license_fields["license_link"]  # a file of the base's repository, where no link from this card leads
    return license_fields if "license" in license_fields else {}


def read_front_matter(card: Any) -> dict[str, Any]:
    """The front matter of a model's card; empty if there is none that can be read."""
    from huggingface_hub import metadata_load

    try:
        return metadata_load(card) or {}
    except Exception:  # no card; or YAML's own, of many kinds: a card that cannot be read says nothing
        return {}


def find_data_sets(run: Mapping[str, Any]) -> list[str]:
    """The hub's names of the training data; empty if one of its sources is not the hub's."""
    parts = sources("data.train", run["config"]["data"]["train"])
    if not all(is_from_hub("data.train", part, run["hub"]) for part in parts):
        return []
    return sorted({part.split(":")[1] for part in parts})


def front_matter(
    run: Mapping[str, Any],
    result: Mapping[str, Any] | None,
    name: str,
    user_fields: Mapping[str, Any] = MappingProxyType({}),
) -> "ModelCardData":
    """The card's fields for the hub; `user_fields` override what the run knows."""
    from huggingface_hub import EvalResult, ModelCardData

    config = run["config"]
    results = [
        EvalResult(
            task_type="STS",
            dataset_type=HUB_DATA_SETS[task],
            dataset_name=TITLES.get(task, task),
            dataset_split="test",
            metric_type="cosine_spearman",
            metric_name="Spearman of the cosines × 100",
            metric_value=round(values["spearman"], 2),
        )
        for task, values in task_scores(result).items()
        if task in HUB_DATA_SETS and is_test(run, task) and not config["eval"]["postprocess"]
    ]
    base = config["model"]["init_from"]
    base_field = {"base_model": base.partition("@")[0]} if is_from_hub("model.init_from", base, run["hub"]) else {}
    return ModelCardData(
        **{**base_field, **user_fields},
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=TAGS,
        datasets=find_data_sets(run) or None,
        model_name=name.rpartition("/")[2] if results else None,
        eval_results=results or None,
    )


def code_of(name: str, revision: str | None, model: Pretrained) -> dict[str, Any]:
    """The template's values of the code that loads the model, each with the same `embeddings`, (3, D)."""
    assert model.pooler is not None  # runs have ours
    names = NAMES.get(model.config.model_type, NAMES["bert"])  # of word vectors: transformers cannot read them
    prompt = model.settings.prompts.get(model.settings.default_prompt_name or "", "")
    # In transformers, a head is the model's own, or a module after the pooling and what comes before it.
    is_module = model.has_head and not names.has_pooler
    revision_argument = f", revision={json.dumps(revision)}" if revision else ""
    return {
        "sentences": SENTENCES,
        "repository": json.dumps(name),
        "revision_argument": revision_argument,
        "arguments": json.dumps(name) + revision_argument,
        "own_name": json.dumps(f"{name}@{revision}" if revision else name),
        "prompt": json.dumps(prompt) if prompt else "",
        "pads_right": model.config.positions == ROTARY,  # its files may say left
        "needs_mask": model.pooler not in FIRST_TOKEN,
        "pooling": POOLING[model.pooler],
        "own_head": names.pooler,
        "dense": f"{3 if model.pooler in (*AVERAGED, MASK_TOKEN) else 2}_Dense" if is_module else "",
    }


def changed_fields(run: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a run's config that differ from the defaults and count for its result, fit to be published."""
    default = flatten(default_config())
    flat = flatten(run["config"])
    return {
        field: public_value(field, value, run["hub"])
        for field, value in flat.items()
        if not field.startswith(FREE) and plain(value) != plain(default.get(field))
    }


def task_scores(result: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """The scores of a `result.json` by task, without its other fields."""
    by_task = {task: values for task, values in (result or {}).items() if isinstance(values, dict)}
    return {task: values for task, values in by_task.items() if "spearman" in values and "pairs" in values}


def is_test(run: Mapping[str, Any], task: str) -> bool:
    """Whether a task's pairs are a published test set; otherwise they are those that chose the checkpoint."""
    evaluation = run["config"]["eval"]
    return task in TASKS and task in evaluation["tasks"] and not _is_file(evaluation)


def _is_file(evaluation: Mapping[str, Any]) -> bool:
    """Whether `eval.data` was a file of pairs, by its name: on this machine it may not be there."""
    return Path(evaluation["data"]).suffix.lower() in PAIRS_IN


def choice(run: Mapping[str, Any]) -> str:
    """What chose the checkpoint, if anything did."""
    evaluation = run["config"]["eval"]
    name = evaluation["development"]
    if run["config"]["data"]["held_out"]:
        if not evaluation["every"]:
            return "no checkpoint was chosen: it is that of the last step"
        data = "other rows held out of the training data"
    elif name == RETRIEVAL:
        data = f"the judgements `{evaluation['retrieval']['development']}` of retrieval"
    elif _is_file(evaluation):
        data = "a file of graded pairs"
    else:
        data = f"the development set of {TITLES.get(DEVELOPMENT[name], DEVELOPMENT[name])}"
    return f"the checkpoint was chosen on {data}"


def scores_of(run: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """The template's values of the scores: rows of tables, and what chose the checkpoint."""
    config, chosen = run["config"], choice(run)
    evaluation, by_task = config["eval"], task_scores(result)
    halved = bool(evaluation["against_start"] and evaluation["every"])
    apart = config["data"]["held_out"] or (halved and _is_file(evaluation))  # the pairs of the scores
    return {
        "result": result,
        "chosen": chosen,
        "apart": ("the checkpoint was chosen by the other half of them" if halved else chosen) if apart else "",
        "is_test": all(is_test(run, task) for task in by_task),
        "chosen_by_retrieval": evaluation["development"] == RETRIEVAL,
        "fitted": public_value("eval.postprocess_data", evaluation["postprocess_data"], run["hub"]),
        "similarity": similarity_rows(by_task),
        "truncated": _truncated_rows(result.get("truncated", {})),
        "retrieval": retrieval_rows(result.get("retrieval", {})) if "retrieval_average" in result else [],
        "against": result.get(AGAINST_START),
        "best_step": result.get(BEST_STEP),
    }


def similarity_rows(by_task: Mapping[str, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """A row for each task of `task_scores`: its name, its score and its pairs."""
    values = [(TITLES.get(task, task), scores["spearman"], scores["pairs"]) for task, scores in by_task.items()]
    if len(values) == len(TASKS):
        values.append(("mean", sum(spearman for _, spearman, _ in values) / len(values), ""))
    return [(task, f"{spearman:.2f}", pairs) for task, spearman, pairs in values]


def _truncated_rows(by_size: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The titles, and a row for each size; empty where there are no such scores."""
    tables = {size: scores for size, values in by_size.items() if (scores := task_scores(values))}
    tasks = list(next(iter(tables.values()), {}))
    rows = [(size, *(f"{scores[task]['spearman']:.2f}" for task in tasks)) for size, scores in tables.items()]
    return [("elements", *(TITLES.get(task, task) for task in tasks)), *rows] if rows else []


def retrieval_rows(by_task: Mapping[str, Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """The titles, and a row for each task."""
    names = [name for name in MEASURES if all(name in values for values in by_task.values())]
    rows = []
    for task, values in by_task.items():
        kept, whole = values["documents"], values.get("corpus", values["documents"])
        documents = f"{kept} of {whole}" if kept < whole else str(kept)  # a sample, which is easier, or all
        rows.append((task, *(f"{values[name]:.2f}" for name in names), values["queries"], documents))
    return [("data", *(MEASURES[name] for name in names), "queries", "documents"), *rows]
