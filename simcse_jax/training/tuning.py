"""The recipe `tune`: what suits a model and data of one's own.

    n rows of           batch                 steps                              learning rate
    pairs and more      16 to 128, n / 32     5 epochs of few rows, 1 of many    2e-5
    sentences           64                    1 epoch, at most 4,000 steps       1e-5

Ten evaluations, or of 500 steps or fewer the end alone. Of data with pairs, a tenth is held out, but at least 100 rows
if these are not more than 30%, and at most 2,000.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

import numpy as np
from ml_collections import config_dict

from simcse_jax.config.checks import check_field
from simcse_jax.config.fields import FIELDS, flatten, has_scores
from simcse_jax.data.columns import USUAL_VALUES
from simcse_jax.data.examples import open_source, open_table, prefix_of
from simcse_jax.data.files import files_of
from simcse_jax.data.held_out import FEWEST
from simcse_jax.data.labels import LABELS, parse_label
from simcse_jax.data.sources import kind_of, split_sources
from simcse_jax.devices import processes
from simcse_jax.errors import UserError, option
from simcse_jax.evaluation.beir import CORPUS, QRELS
from simcse_jax.evaluation.tasks import RETRIEVAL
from simcse_jax.host.storage import local_path
from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.sentence_transformers import DOCUMENT_PROMPTS
from simcse_jax.objectives.registry import needing, trained
from simcse_jax.runs.loading import load_model

LOOKED_AT = 1000  # rows whose lengths are looked at
SCORES = ("score", "similarity", "similarity_score", "sim", "relatedness", "relatedness_score", "rating")  # columns
DUPLICATES = ("is_duplicate", "is_paraphrase", "duplicate", "paraphrase_label")  # columns of labels 0 and 1
MANY_LABELS = 20
SHORTEST, STEP = 32, 32  # tokens: the least length, and what it is rounded up to
MOST_STEPS = 4000  # on sentences alone
FEW_STEPS = 500  # with no more of them the last checkpoint is taken, and all that is held out compares it
FEW, MANY = 100, 2000  # rows held out, at least and at most


class Data(NamedTuple):
    """What the data are."""

    rows: int
    width: int  # sentences of a row: 1 for sentences, 2 for pairs, more with hard negatives
    positives: str = ""  # `data.positives`
    score: str = ""  # the column of scores; empty: there are none
    texts: Sequence[str] = ()  # of the first rows
    columns: tuple[str, ...] = ()  # that are read

    @property
    def kind(self) -> str:
        """For people."""
        if self.score:
            return "pairs with scores"
        return f"pairs labelled {self.positives}" if self.positives else kind_of(self.width)


def complete(config: config_dict.ConfigDict, given: AbstractSet[str]) -> None:
    """Sets the fields that depend on the model and the data, and prints them.

    Args:
      config: of the recipe, with the values of the command line.
      given: the names of the fields that have a value from there, which stay as they are.

    Raises:
      UserError: when the model or the data cannot be read, or cannot be tuned.
    """
    for field, short in {"data.train": ("data", "FILE"), "model.init_from": ("model", "NAME")}.items():
        if flatten(config)[field]:
            continue
        if "sweep" in config:  # whose rows may name it, too late for what follows from it
            raise UserError(
                f"config.{field} is empty, and other fields of the rows follow from it; give {option(*short)}"
            )
        return  # as the checks will say
    for name in given & FIELDS.keys():
        check_field(f"config.{name}", flatten(config)[name], FIELDS[name])
    processes.initialize(config.parallel)
    with processes.together():
        model = load_model(config.model.init_from, config.model.num_layers)
        data = look_at(config)
        name_retrieval(config, given)
    fields = flatten(config)
    held_out = fields["data.held_out"] if "data.held_out" in given else rows_to_hold_out(config, data)
    found = {**of_model(model, data), **of_data(config, data), "data.held_out": held_out}
    longest = max(found["data.prompts.anchor"], found["data.prompts.positive"], key=len)
    found |= {"data.max_length": length_of(model, [longest + text for text in data.texts])}
    if not (held_out or config.eval.data or config.eval.retrieval.data):
        found["eval.against_start"] = False
    found |= sizes_of(data.rows - held_out, data.width, {name: fields[name] for name in given if name in fields})
    config.update_from_flattened_dict({name: value for name, value in found.items() if name not in given})
    columns = f" ({', '.join(data.columns)})" if data.columns[1:] else ""
    processes.say(
        f"tune: {data.rows:,} {data.kind}{columns}; {', '.join(f'{name} {value}' for name, value in shown(config))}"
    )
    if not has_scores(config):
        least = -(-2 * FEWEST * 10 // 3)
        why = "sentences alone cannot" if data.width == 1 else f"fewer than {least} rows are too few to"
        judge = option("eval", "FILE")
        processes.say(f"tune: {why} tell whether training helps; give {judge}: pairs with scores, or BEIR's layout")


def shown(config: config_dict.ConfigDict) -> Iterator[tuple[str, Any]]:
    """The names and values for people."""
    objectives = [name for name, term in config.objective.items() if term.weight]
    yield "objective", " + ".join(objectives)
    yield "batch size", config.train.batch_size
    yield ("steps", config.train.max_steps) if config.train.max_steps else ("epochs", config.train.epochs)
    yield "learning rate", config.train.learning_rate
    yield "at most", f"{config.data.max_length} tokens"
    yield "evaluations", f"every {config.eval.every} steps" if config.eval.every else "at the start and the end"


def of_model(model: Pretrained, data: Data) -> dict[str, Any]:
    """The fields by which the trained model is what the model was.

    Raises:
      UserError: for a model with parts that training would leave out.
    """
    model.check_layers("tuning")
    if model.refusal or not model.include_prompt:
        raise UserError(f"{model.name}: {' and '.join(model.besides)}: cannot be tuned, since training would drop it")
    prompts = model.settings.prompts
    anchor, positive = prompts.get("query", ""), next(filter(None, map(prompts.get, DOCUMENT_PROMPTS)), "")
    if data.width == 1 or data.score:
        anchor = positive = prompts.get(model.settings.default_prompt_name or "", "")
    quoted = {"anchor": anchor, "positive": "" if data.width == 1 else positive}
    return {
        "model.pooler": model.pooler,
        "model.mlp": "always" if model.has_head else "none",
        **{f"data.prompts.{role}": _quoted(text) for role, text in quoted.items()},
    }


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def of_data(config: config_dict.ConfigDict, data: Data) -> dict[str, Any]:
    """The objective that the data allow, and how they are read."""
    chosen = "cosent" if data.score else "info_nce"
    found: dict[str, Any] = {"data.positives": data.positives}
    if data.score:
        found["data.columns.score"] = data.score
    if not any(one.embeds for name, one in trained(config.objective).items() if name != "info_nce"):
        found |= {f"objective.{name}.weight": float(name == chosen) for name in {chosen, "info_nce"}}
    return found


def name_retrieval(config: config_dict.ConfigDict, given: AbstractSet[str]) -> None:
    """Moves the name of a folder in BEIR's layout from `eval.data` to where such folders are named."""
    folder, fields = local_path(config.eval.data), config.eval.retrieval
    if not config.eval.data or not (folder / CORPUS).is_file():
        return
    if fields.data:
        raise UserError(
            f"config.eval.retrieval.data={fields.data}: {folder} is such a folder too; name all of them here"
        )
    fields.data, config.eval.data = config.eval.data, ""
    if "eval.development" not in given:
        config.eval.development = RETRIEVAL
    if "eval.retrieval.development" not in given:
        fields.development = "dev" if (folder / QRELS / "dev.tsv").is_file() else "test"
        if fields.development == "test":
            processes.say(f"{folder}: has no {QRELS}/dev.tsv, so its test queries choose the checkpoint too")


def rows_to_hold_out(config: config_dict.ConfigDict, data: Data) -> int:
    """How many rows are held out to choose the checkpoint and to compare it with the start."""
    if config.eval.data or config.eval.retrieval.data or data.width == 1:
        return 0
    if needing(config.objective, "labels") or needing(config.objective, "teacher"):  # by which nothing is held out
        return 0
    count = min(MANY, max(data.rows // 10, min(FEW, 3 * data.rows // 10)))
    return count if count >= 2 * FEWEST else 0


def sizes_of(rows: int, width: int, set_already: Mapping[str, Any]) -> dict[str, Any]:
    """The batch size, the passes or steps, the learning rate and the steps between evaluations.

    Args:
      rows: to train on.
      width: sentences of a row.
      set_already: those of these fields that are given.
    """
    alone = width == 1
    size, most = (64, 64) if alone and rows >= 64 else (16, 128)
    while size < most and rows >= 64 * size:
        size *= 2
    size = set_already.get("train.batch_size", min(size, max(rows, 2)))
    epoch = max(rows // size, 1)
    epochs = set_already.get("train.epochs", 1 if alone else int(np.clip(-(-300 // epoch), 1, 5)))
    limit = MOST_STEPS if alone and epochs * epoch > MOST_STEPS else 0
    steps = set_already.get("train.max_steps", limit)
    return {
        "train.batch_size": size,
        "train.epochs": epochs,
        "train.max_steps": steps,
        "train.learning_rate": 1e-5 if alone else 2e-5,
        "eval.every": every if (every := (steps or epochs * epoch) // 10) > FEW_STEPS // 10 else 0,
    }


def length_of(model: Pretrained, texts: Sequence[str]) -> int:
    """The length that holds all of these texts but one in a hundred, at most the model's own."""
    lengths = [len(ids) for ids in model.tokenizer(list(texts), model.max_length)]
    wanted = int(np.percentile(lengths, 99)) if lengths else SHORTEST
    return min(model.max_length, max(SHORTEST, -(-wanted // STEP) * STEP))


def look_at(config: config_dict.ConfigDict) -> Data:
    """Reads the training data to see what they are.

    Raises:
      UserError: in the cases of reading them; also for sources of different kinds.
    """
    files = [
        file for name in split_sources(config.data.train) for file in ([name] if prefix_of(name) else files_of(name))
    ]
    found = [_look_at(config, file) for file in files]
    kinds = list(dict.fromkeys(data.kind for data in found))
    if len({(data.width == 1, data.positives, data.score) for data in found}) > 1:
        what = f"has {' and '.join(kinds)}; tune on data of one kind"
        raise UserError(f"{option('data', config.data.train)}: {what}")
    texts = [text for data in found for text in data.texts]
    rows = sum(data.rows for data in found)
    return found[0]._replace(rows=min(rows, config.data.subsample or rows), texts=texts)


def _look_at(config: config_dict.ConfigDict, name: str) -> Data:
    positives, score = config.data.positives, config.data.columns.score
    columns = config.data.columns
    if not positives and not any(columns[role] for role in ("anchor", "score")):
        try:
            positives, score = _of_labels(name, columns.label)
        except UserError:
            if open_source(name, {**columns}, "", False, pairs=False).width == 2:
                raise  # other rows have no use for labels
    source = open_source(name, {**columns, "score": score}, positives, False, pairs=False)
    if source.width != 2:
        positives = score = ""
    rows, texts = 0, list[str]()
    for row in source.rows:
        sentences, label = source.read(row)
        if all(sentences) and (not positives or label == LABELS.index(positives)):
            rows += 1
            texts += sentences if rows <= LOOKED_AT else []
    columns = tuple(source.names[place] for place in source.chosen) + ((score,) if score else ())
    return Data(rows, source.width + source.negatives.lists, positives, score, texts, columns)


def _of_labels(name: str, column: str) -> tuple[str, str]:
    """`data.positives` and the column of scores, by a table's columns of scores and labels; empty: there are none.

    Labels of 0 and 1 alone are scores: whether two sentences mean the same.

    Raises:
      UserError: for other labels than these and those of NLI: whether their pairs are positives cannot be known.
    """
    names, rows, _, _ = open_table(name)
    written = {each.strip().lower(): each for each in reversed(names)}
    if score := next((written[each] for each in SCORES if each in written), ""):
        return "", score
    label = column or next((written[each] for each in (*USUAL_VALUES["label"], *DUPLICATES) if each in written), "")
    if label not in names:
        return "", ""
    place, values = list(names).index(label), set[Any]()
    for row in rows:
        values.add(row.fields[place])
        if len(values) > MANY_LABELS:
            break
    plain = {str(value).strip().lower().removesuffix(".0") for value in values} - {"", "none"}
    if plain == {"0", "1"}:
        return "", label
    try:
        if {parse_label(value, label) for value in plain} - {None} == {0, 1, 2} and label not in DUPLICATES:
            return "entailment", ""
    except UserError:
        pass
    shown = ", ".join(sorted(plain)[:3])
    raise UserError(
        f"{name}: the column {label!r} holds {shown}{' …' * (len(plain) > 3)}: tune knows 0 and 1 (whether two "
        "sentences mean the same), and entailment, neutral and contradiction. Write these, or name the columns of the "
        "pairs: data.columns.anchor=NAME and data.columns.positive=NAME"
    )
