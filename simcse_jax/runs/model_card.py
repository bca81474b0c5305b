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
from simcse_jax.huggingface.public_names import base_name, is_from_hub, public_value, sources
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
# The rows of published files of training sentences, and the data set of the hub that they are from.
KNOWN_FILES = {"wiki1m_for_simcse.txt": 1_000_000, "nli_for_simcse.csv": 275_601}
KNOWN_FILES_FROM = "princeton-nlp/datasets-for-simcse"
SIMILARITY_SETS = {**HUB_DATA_SETS, "SICKRelatedness": "mteb/sickr-sts"}  # what is trained on is in these, too
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
    """The whole file.

    Args:
      run: the contents of `run.json`.
      name: the name to load it by: OWNER/NAME on the hub, or a folder's base name.
      revision: the hub's branch, None for the main one.
      user_fields: fields of the front matter that override what the run knows (`card_fields`).
      step: of the checkpoint; None for the best one, which is the one that the run scored.
    """
    assert model.pooler is not None  # runs have ours
    result = result if step is None else None
    size = truncated_size(model)
    scored = (result or {}).get("truncated", {}).get(str(size)) if size else result
    if "license" not in user_fields:
        user_fields = {**read_license(run["config"]["model"]["init_from"]), **user_fields}
    whose = f"The scores are those of all {model.config.sentence_size} numbers; this model gives the first {size}, "
    whose += "whose scores stand below them." if task_scores(scored) else "which were not scored."
    changed = changed_fields(run).items()
    parts = [
        f"---\n{front_matter(run, scored, name, user_fields).to_yaml().strip()}\n---",
        f"# {name.rpartition('/')[2]}",
        description(model, run) + (f" This is its checkpoint of step {step}." if step is not None else ""),
        "## Use it",
        *snippets(name, revision, model),
        "## Scores",
        *([whose] if size and result else []),
        scores(run, result) if step is None else "The run scored another checkpoint than this one.",
        *against_start(result),
        "## Training",
        training(run) if model.config.num_layers else "Nothing was trained: the vectors are those of the file.",
        "The fields of the recipe that differ from simcse_jax's defaults:",
        table(("field", "value"), [(f"`{key}`", f"`{value}`" if value else "(none)") for key, value in changed]),
        "Versions: " + ", ".join(f"{package} {version}" for package, version in run["versions"].items()) + ".",
    ]
    return "\n\n".join(parts) + "\n"


def truncated_size(model: Pretrained) -> int:
    """The elements that the model's embeddings keep, if these are not all; else 0."""
    size = model.settings.truncate_dim or 0
    return size if size < model.config.sentence_size else 0


def description(model: Pretrained, run: Mapping[str, Any]) -> str:
    """The model in a line."""
    base = public_value("model.init_from", run["config"]["model"]["init_from"], run["hub"])
    head = ", then a dense layer with tanh" if model.has_head else ", no head"
    if model.config.modules:
        head += f", then {describe(model.config.modules)}"
    if model.config.convolutions:
        head = f" of convolutions of {', '.join(map(str, model.config.convolutions.widths))} tokens" + head
    text = (
        f"{model.config.num_layers} layers, pooler `{model.pooler}`{head}, at most {model.max_length} tokens. "
        f"{'Trained' if _is_trained(run) else 'Made, without training,'} from `{base}`"
    )
    if not model.config.num_layers:  # word vectors
        text = f"The average of the vectors of its words, at most {model.max_length}. Made from `{base}`"
    size = model.settings.truncate_dim or model.config.sentence_size
    start = f"A sentence encoder: {size} numbers a sentence, to be compared by {COMPARED[model.settings.similarity]}."
    if truncated_size(model):
        start += f" They are the first of {model.config.sentence_size}; `truncate_dim` takes more or fewer."
    text = f"{start} {text} with simcse_jax {run['versions']['simcse_jax']}."
    if sizes := run["config"]["matryoshka"]["dimensions"]:
        text += f" Its first {' or '.join(sizes)} numbers were trained to be embeddings too: `truncate_dim` takes them."
    return text


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
    """The hub's names of the training data; empty if one of its sources is not known to be there."""
    parts = sources("data.train", run["config"]["data"]["train"])
    names_of_parts = [_data_sets(part, run, alone=len(parts) == 1) for part in parts]
    return sorted({name for names in names_of_parts for name in names}) if all(names_of_parts) else []


def _data_sets(source: str, run: Mapping[str, Any], alone: bool) -> list[str]:
    """The data sets of `hf:NAME`, of the STS sets, or of a published file, by its name and size."""
    kind, _, name = source.partition(":")
    if kind == "hf":
        return [name.partition(":")[0]] if is_from_hub("data.train", source, run["hub"]) else []
    if kind == "sts":
        tasks = [task for task in SIMILARITY_SETS if f":{task}:" in f":{name}:"]
        return [SIMILARITY_SETS[task] for task in tasks or SIMILARITY_SETS]
    rows = KNOWN_FILES.get(base_name(source), 0)
    is_known = alone and rows and 0.999 * rows <= run["examples"] <= rows  # a few may be blank
    return [KNOWN_FILES_FROM] if is_known else []


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


def snippets(name: str, revision: str | None, model: Pretrained) -> list[str]:
    """Ways to load it, in Markdown; each sets `embeddings`, (3, D), to the same numbers."""
    only = ", batch_size=1" if model.config.convolutions else ""  # the library convolves padding too
    in_transformers = model.config.num_layers and not (model.config.convolutions or model.config.modules)
    arguments = json.dumps(name) + (f", revision={json.dumps(revision)}" if revision else "")
    code = {
        "sentence-transformers": [
            "from sentence_transformers import SentenceTransformer",
            "",
            SENTENCES,
            f"model = SentenceTransformer({arguments})",
            f"embeddings = model.encode(sentences{only})",
        ],
        **({"transformers": _transformers_lines(arguments, model)} if in_transformers else {}),
        "simcse_jax": [
            "from simcse_jax import SimCSE",
            "",
            SENTENCES,
            f"model = SimCSE({json.dumps(f'{name}@{revision}' if revision else name)})",
            "embeddings = model.encode(sentences)",
        ],
    }
    return ["\n".join([f"With {title}:", "", "```python", *lines, "```"]) for title, lines in code.items()]


def _transformers_lines(arguments: str, model: Pretrained) -> list[str]:
    """Lines of code; `arguments` are the name and perhaps the revision."""
    assert model.pooler is not None
    pooler, max_length = model.pooler, model.max_length
    prompt = model.settings.prompts.get(model.settings.default_prompt_name or "", "")
    names = NAMES[model.config.model_type]
    imports, head = ["from transformers import AutoModel, AutoTokenizer"], []
    right = ', padding_side="right"' if model.config.positions == ROTARY else ""  # its files may say left
    if model.has_head and names.has_pooler:
        head = [f"    embeddings = torch.tanh(model.{names.pooler}(embeddings))  # the head"]
    elif model.has_head:
        repository, comma, revision = arguments.partition(", ")
        folder = f"{3 if pooler in (*AVERAGED, MASK_TOKEN) else 2}_Dense"  # after the pooling and what comes before it
        imports = ["from safetensors.torch import load_file", *imports, "from transformers.utils import cached_file"]
        head = [
            f'    head = load_file(cached_file({repository}, "{folder}/model.safetensors"{comma}{revision}))',
            '    embeddings = torch.tanh(embeddings @ head["linear.weight"].T + head["linear.bias"])',
        ]
    return [
        "import torch",
        *imports,
        "",
        SENTENCES,
        *([f"sentences = [{json.dumps(prompt)} + sentence for sentence in sentences]"] if prompt else []),
        *(["sentences = [sentence.lower() for sentence in sentences]"] if model.tokenizer.lowers_first else []),
        f"tokenizer = AutoTokenizer.from_pretrained({arguments}{right})",
        f"model = AutoModel.from_pretrained({arguments}).eval()",
        f'batch = tokenizer(sentences, padding=True, truncation=True, max_length={max_length}, return_tensors="pt")',
        "with torch.no_grad():",
        "    states = model(**batch, output_hidden_states=True).hidden_states",
        *(['    mask = batch["attention_mask"].unsqueeze(-1)'] if pooler not in FIRST_TOKEN else []),
        f"    {POOLING[pooler]}",
        *head,
        *(["    embeddings = torch.nn.functional.normalize(embeddings)"] if model.normalize else []),
        *([f"    embeddings = embeddings[:, :{size}]"] if (size := truncated_size(model)) else []),
    ]


def training(run: Mapping[str, Any]) -> str:
    """Data, seed and device in sentences."""
    if not _is_trained(run):
        return "Nothing was trained: the weights are those that it started with."
    config, device = run["config"], run["device"]
    terms = {name: term["weight"] for name, term in config["objective"].items() if term["weight"]}
    data = public_value("data.train", config["data"]["train"], run["hub"])
    fingerprint = run["sha256"].get("data.train")
    rows = f", {run['examples']:,} examples" if run["examples"] else ""
    lines = [f"- Data: `{data}`{rows}" + (f" (SHA-256 of its token ids: `{fingerprint}`)" if fingerprint else "")]
    lines += [f"- Tokens of a sentence in training, at most: {config['data']['max_length']}"]
    lines += ["- Loss: " + " + ".join(f"{weight:g} · `{name}`" for name, weight in terms.items())]
    trained, scored = config["model"]["pooler"], scoring_pooler(config)
    lines += [f"- Pooler in training: `{trained}`; of this model and its scores: `{scored}`"] * (trained != scored)
    lines += [f"- Seed: {config['seed']}"]
    lines += [f"- Device, at the start: {device['count']} × {device['kind']}"]
    return "\n".join(lines)


def _is_trained(run: Mapping[str, Any]) -> bool:
    train = run["config"]["train"]
    return bool(train["max_steps"] or train["epochs"])


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
    """A sentence about the data that chose the checkpoint, if any did."""
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


def against_start(result: Mapping[str, Any] | None) -> list[str]:
    """A sentence about the model and its start, if they were compared."""
    comparison = (result or {}).get(AGAINST_START)
    if not comparison:
        return []
    before, after, low, high = (comparison[name] for name in ("before", "after", "low", "high"))
    measure = f"{comparison['measure']}: before"
    text = f"{measure} training {before:.2f}, after it {after:.2f}: {after - before:+.2f}, with a 95% interval from "
    text += f"{low:+.2f} to {high:+.2f} (paired bootstrap)."
    if not (result or {}).get(BEST_STEP):
        text += " Training made it no better, so **this is the model that training started from**."
    return [text]


def scores(run: Mapping[str, Any], result: Mapping[str, Any] | None) -> str:
    """The tables of similarity and retrieval, each with its protocol."""
    parts = [part for part in (similarity(run, result), truncated(result), retrieval(run, result)) if part]
    return "\n\n".join(parts) or "The run has no scores: nothing was evaluated, or it has not ended."


def truncated(result: Mapping[str, Any] | None) -> str:
    """The table of similarity at smaller sizes; empty if there are no such scores."""
    by_size = (result or {}).get("truncated", {})
    tables = {size: task_scores(values) for size, values in by_size.items() if isinstance(values, dict)}
    tables = {size: values for size, values in tables.items() if values}
    if not tables:
        return ""
    tasks = list(next(iter(tables.values())))
    rows = [(size, *(f"{values[task]['spearman']:.2f}" for task in tasks)) for size, values in tables.items()]
    titles = ("elements", *(TITLES.get(task, task) for task in tasks))
    return "The same of the first elements of the embeddings alone:\n\n" + table(titles, rows)


def retrieval(run: Mapping[str, Any], result: Mapping[str, Any] | None) -> str:
    """The table of retrieval and its protocol; empty if there are no such scores."""
    by_task = result.get("retrieval") if result and "retrieval_average" in result else None
    if not by_task:
        return ""
    first, *other_scores = by_task.values()
    names = [name for name in first if name in MEASURES and all(name in values for values in other_scores)]
    rows = [
        (task, *(f"{values[name]:.2f}" for name in names), values["queries"], documents)
        for task, values in by_task.items()
        for kept, whole in [(values["documents"], values.get("corpus", values["documents"]))]
        for documents in [f"{kept} of {whole}" if kept < whole else str(kept)]  # a sample, which is easier, or all
    ]
    evaluation, held_out = run["config"]["eval"], run["config"]["data"]["held_out"]
    fields = evaluation["retrieval"]
    of = "rows held out of the training data" if held_out else f"the judgements `{fields['split']}`"
    protocol = f"Retrieval by cosine, × 100, as trec_eval computes it, on {of}"
    if (rounded := fields["storage"]) != "float32":
        protocol += f", with documents' embeddings in {rounded}"
    if evaluation["development"] == RETRIEVAL and fields["development"] == fields["split"]:
        protocol += ". These are the judgements that the checkpoint was chosen by, not a test set."
    else:
        protocol += f"; {choice(run)}."
    return protocol + "\n\n" + table(("data", *(MEASURES[name] for name in names), "queries", "documents"), rows)


def similarity(run: Mapping[str, Any], result: Mapping[str, Any] | None) -> str:
    """The table of similarity and its protocol; empty if there are no such scores."""
    by_task = task_scores(result)
    if not by_task:
        return ""
    config = run["config"]
    test = all(is_test(run, task) for task in by_task)
    rows = [(TITLES.get(task, task), f"{values['spearman']:.2f}", values["pairs"]) for task, values in by_task.items()]
    if len(by_task) == len(TASKS):
        rows.append(("mean", f"{sum(values['spearman'] for values in by_task.values()) / len(by_task):.2f}", ""))
    protocol = (
        "Spearman's rank correlation × 100 between cosine similarity and the human ratings, over all pairs of a task "
        'together ("all" of SimCSE, Appendix B), nothing trained on top. '
    )
    halved = config["eval"]["against_start"] and config["eval"]["every"]
    if config["data"]["held_out"] or (halved and _is_file(config["eval"])):
        protocol += "Pairs that were not trained on; "
        protocol += "the checkpoint was chosen by the other half of them." if halved else f"{choice(run)}."
    elif test:
        protocol += f"SentEval's test sets; {choice(run)}."
    elif config["eval"]["development"] == RETRIEVAL:
        protocol += f"No published test set; {choice(run)}."
    else:
        protocol += "These are the pairs that the checkpoint was chosen by, not a test set."
    if method := config["eval"]["postprocess"]:
        fitted = config["eval"]["postprocess_data"]
        fitted = public_value("eval.postprocess_data", fitted, run["hub"])
        protocol += f" The embeddings went through {method} first, fit on `{fitted}`; this model does not contain it."
    return protocol + "\n\n" + table(("task", "Spearman × 100", "pairs"), rows)


def table(titles: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """A table in Markdown."""
    lines = [titles, ("---",) * len(titles), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", r"\|") for cell in line) + " |" for line in lines)
