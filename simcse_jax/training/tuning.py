"""The recipe `tune`: fields that suit the user's model and data.

    n rows of           batch                 steps                              learning rate
    pairs and more      16 to 128, n / 32     5 epochs of few rows, 1 of many    2e-5
    classes             twice the classes,    as pairs
                        at most n / 2
    sentences           64                    1 epoch, at most 4,000 steps       1e-5

Fewer than 5,000 rows with pairs or classes judge in five folds whether training helps (`data.folds`), and all of them
train what is kept. Of more, 2,000 are held out. A run without folds has ten evaluations, for which another 2,000 are
held out, or with 500 steps or fewer only that of the end.
"""

import warnings
from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
from ml_collections import config_dict

from simcse_jax.choices import LABELS, RETRIEVAL
from simcse_jax.config.checks import check_field
from simcse_jax.config.fields import FIELDS, flatten
from simcse_jax.data.columns import (
    SCORES,
    SENTENCE_PAIRS,
    USUAL_VALUES,
    are_long,
    choose_columns,
    is_content,
    listed,
    of_values,
    one_line,
    perhaps_scores,
    plain,
)
from simcse_jax.data.examples import draw, numbers_beside, open_source, open_table, prefix_of
from simcse_jax.data.files import files_of
from simcse_jax.data.held_out import in_folds
from simcse_jax.data.labels import UNLABELLED, Classes, NamedLabel
from simcse_jax.data.rows import MISSING, is_number
from simcse_jax.data.scores import Scores, parse_score
from simcse_jax.data.sources import Examples, kind_of
from simcse_jax.devices import processes
from simcse_jax.errors import UserError, about, option
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.beir import CORPUS, QRELS
from simcse_jax.host.names import split_sources
from simcse_jax.host.storage import local_path
from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.sentence_transformers import DOCUMENT_PROMPTS
from simcse_jax.objectives.objective import CLASSES
from simcse_jax.objectives.registry import needing, trained_objectives
from simcse_jax.runs.loading import load_model
from simcse_jax.runs.state import model_spec
from simcse_jax.training.data_spec import DataSpec
from simcse_jax.training.held_out import obstacle, obstacle_to_folds, split_rows
from simcse_jax.training.setup import data_spec, folds_spec, held_out_spec

LOOKED_AT = 1000  # rows whose lengths are looked at
MANY_LABELS = 20
SHORTEST, STEP = 32, 32  # tokens: the least length, and the multiple that lengths are rounded up to
MOST_STEPS = 4000  # on sentences alone
FEW_STEPS = 500  # with no more of them the last checkpoint is taken, and all that is held out compares it
FOLDS = 5
MOST_IN_FOLDS = 5000  # rows; more take long to train on six times, and 2,000 that are held out find a gain of a point
FEW_JUDGED = 500  # pairs of --eval; with fewer, none are spared to choose the checkpoint
FEW, HELD_OUT = 100, 2000  # rows that compare: without folds at least, and where folds would be too large


class DataSummary(NamedTuple):
    """What was found in the training data."""

    rows: int
    width: int  # sentences of a row: 1 for sentences, 2 for pairs, more with hard negatives
    positives: str = ""  # `data.positives`
    label: str = ""  # the column of labels
    score: str = ""  # the column of scores; empty: there are none
    texts: Sequence[str] = ()  # of the first rows
    columns: tuple[str, ...] = ()  # that are read
    pairs: tuple[list[str], list[str]] = ([], [])  # the anchors and positives of all rows
    scores: Sequence[float] = ()  # of all rows
    ones: str = ""  # the column of scores that are all 1: all pairs are positives
    classes: Sequence[int] = ()  # of all rows, where sentences have them; in `pairs`, these are the anchors

    @property
    def alone(self) -> bool:
        """Whether nothing belongs to a sentence."""
        return self.width == 1 and not self.classes

    @property
    def kind(self) -> str:
        """The kind of data, for messages."""
        if self.classes:
            return f"sentences in {len({*self.classes})} classes"
        if self.score:
            return "pairs with scores"
        return f"pairs labelled {self.positives}" if self.positives else kind_of(self.width)


def complete(config: config_dict.ConfigDict, user_fields: AbstractSet[str]) -> None:
    """Sets the fields that depend on the model and the data, but for `user_fields`, and prints them."""
    for field, short in {"data.train": ("data", "FILE"), "model.init_from": ("model", "NAME")}.items():
        if flatten(config)[field]:
            continue
        if "sweep" in config:  # its rows may set it, too late for the fields that follow from it
            raise UserError(
                f"config.{field} is empty, and other fields of the rows follow from it; give {option(*short)}"
            )
        return  # the checks report it
    for name in user_fields & FIELDS.keys():
        check_field(f"config.{name}", flatten(config)[name], FIELDS[name])
    processes.initialize(config.parallel.processes, config.parallel.process_id, config.parallel.coordinator)
    with processes.exit_together():
        model = load_model(config.model.init_from, config.model.num_layers)
        data = inspect_data(data_spec(config), classes=trains_classes(config))
        config.update_from_flattened_dict(retrieval_fields(config.eval.data, config.eval.retrieval.data, user_fields))
        all_judge = has_few_pairs(config.eval.data)
    objectives = model_spec(config).objectives
    fields = flatten(config)
    set_already = {name: fields[name] for name in user_fields if name in fields}
    settled = {**model_fields(model, data), **data_fields(data, objectives)}
    longest = max(settled["data.prompts.anchor"], settled["data.prompts.positive"], key=len)
    settled |= {"data.max_length": fitting_length(model, [longest + text for text in data.texts])}

    scored = bool(config.eval.data or config.eval.retrieval.data)

    def settle(folds: int = 0, held_out: int = 0) -> None:
        values = settled | size_fields(data.rows - held_out, data.alone, len({*data.classes}), set_already)
        values |= {
            "data.folds": folds,
            "data.held_out": held_out,
            "eval.against_start": bool(folds or held_out or scored),
        }
        values |= {"eval.every": 0} if folds or all_judge else {}
        config.update_from_flattened_dict({name: value for name, value in values.items() if name not in user_fields})

    why, held_out_given = "" if scored else no_judges(data, objectives), "data.held_out" in user_fields
    settle(held_out=config.data.held_out if held_out_given else 0)
    if not (scored or why or held_out_given):
        folds = set_already.get("data.folds", FOLDS if data.rows < MOST_IN_FOLDS else 0)
        held_out = 0 if folds else rows_to_hold_out(data.rows)
        settle(folds, held_out)
        if held_out and config.eval.every and data.rows > 4 * held_out:  # half of them choose the checkpoint
            settle(folds, 2 * held_out)
        if why := find_obstacle(data, config):
            settle()
    say_settings(config, data, why)
    sizes = np.bincount(data.classes) if data.classes else np.zeros(0)
    if few := int(np.count_nonzero(sizes < config.data.folds)):
        processes.say(
            f"tune: {few} of {len(sizes)} classes have fewer rows than there are folds: a row counts as wrong where no "
            "other fold has its class; bring more of them"
        )


def say_settings(config: config_dict.ConfigDict, data: DataSummary, why: str) -> None:
    """Prints the settings, and `why` nothing is compared with the base model, if so."""
    columns = f" ({listed(data.columns)})" if data.columns[1:] else ""
    train, score_every = config.train, config.eval.every
    shown = {
        "objective": " + ".join(name for name, term in config.objective.items() if term.weight),
        "batch size": train.batch_size,
        **({"steps": train.max_steps} if train.max_steps else {"epochs": train.epochs}),
        "learning rate": train.learning_rate,
        "at most": f"{config.data.max_length} tokens",
        "evaluations": f"every {score_every} steps" if score_every else "at the start and the end",
    }
    if config.data.folds:
        shown["evaluations"] = f"in {config.data.folds} folds"
    processes.say(f"tune: {data.rows:,} {data.kind}{columns}; {', '.join(f'{name} {shown[name]}' for name in shown)}")
    if why:
        judge = option("eval", "FILE")
        give = f"give {judge}: pairs with scores, or BEIR's layout"
        processes.say(f"tune: not compared with the base model: {why}; {give}")


def model_fields(model: Pretrained, data: DataSummary) -> dict[str, Any]:
    """The fields by which the trained model embeds as the base model does; refuses parts that training would drop."""
    model.check_layers("tuning")
    if model.refusal or not model.include_prompt:
        raise UserError(f"{model.name}: {' and '.join(model.besides)}: cannot be tuned, since training would drop it")
    prompts = model.settings.prompts
    anchor, positive = prompts.get("query", ""), next(filter(None, map(prompts.get, DOCUMENT_PROMPTS)), "")
    if data.width == 1 or data.score:
        anchor = positive = prompts.get(model.settings.default_prompt_name or "", "")
    prompts_of_roles = {}
    for role, text in {"anchor": anchor, "positive": "" if data.width == 1 else positive}.items():
        quoted = '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text
        prompts_of_roles[f"data.prompts.{role}"] = quoted
    return {
        "model.pooler": model.pooler,
        "model.mlp": "always" if model.has_head else "none",
        **prompts_of_roles,
    }


def trains_classes(config: config_dict.ConfigDict) -> bool:
    """Whether classes of sentences are trained on, if there are any: no objective of the user's has another use."""
    chosen = [name for name, objective in trained_objectives(config.objective).items() if objective.embeds]
    return not {*chosen} - {"info_nce", "supcon"} and not (config.data.augment.name or config.data.positives)


def data_fields(data: DataSummary, objectives: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the objective that suits the data, and of how they are read."""
    chosen = "cosent" if data.score else "supcon" if data.classes else "info_nce"
    values: dict[str, Any] = {"data.positives": data.positives}
    if data.score:
        values["data.columns.score"] = data.score
    elif data.positives or data.classes:
        values["data.columns.label"] = data.label
    trained = trained_objectives(objectives).items()
    if not any(objective.embeds for name, objective in trained if name not in ("info_nce", chosen)):
        values |= {f"objective.{name}.weight": float(name == chosen) for name in {chosen, "info_nce"}}
    return values


def retrieval_fields(data: str, named: str, user_fields: AbstractSet[str]) -> dict[str, Any]:
    """The fields that move a folder in BEIR's layout from `eval.data` to where such folders are `named`; {} without."""
    folder = local_path(data)
    if not data or not (folder / CORPUS).is_file():
        return {}
    if named:
        raise UserError(f"config.eval.retrieval.data={named}: {folder} is such a folder too; name all of them here")
    fields = {"eval.retrieval.data": data, "eval.data": ""}
    if "eval.development" not in user_fields:
        fields["eval.development"] = RETRIEVAL
    if "eval.retrieval.development" not in user_fields:
        split = fields["eval.retrieval.development"] = "dev" if (folder / QRELS / "dev.tsv").is_file() else "test"
        if split == "test":
            processes.say(f"{folder}: has no {QRELS}/dev.tsv, so its test queries choose the checkpoint too")
    return fields


def has_few_pairs(data: str) -> bool:
    """Whether `eval.data` is a file of so few graded pairs that half of them could hardly judge."""
    if not local_path(data).is_file():
        return False
    with about("config.eval.data"):
        (pairs,) = sts.read(data, ())[0].values()
    return len(pairs.gold) < FEW_JUDGED


def no_judges(data: DataSummary, objectives: Mapping[str, Any]) -> str:
    """Why no rows of these data can tell whether training helps, as text; "" if some can."""
    if data.alone:
        return "sentences alone cannot tell whether training helps"
    for need, description in (("labels", "labels"), ("teacher", "a teacher")):
        if needed_by := [each for each in needing(objectives, need) if each.labels != CLASSES]:
            return f"objective.{needed_by[0].name} is trained with {description}, by which nothing is held out"
    return ""


def rows_to_hold_out(rows: int) -> int:
    """How many of these rows compare the model with the base model, without folds."""
    return HELD_OUT if rows >= MOST_IN_FOLDS else max(rows // 10, min(FEW, 3 * rows // 10))


def find_obstacle(data: DataSummary, config: config_dict.ConfigDict) -> str:
    """Why the rows cannot judge as the config says, as text; "" if they can."""
    columns = data.pairs[:1] if data.classes else data.pairs
    examples = Examples(columns, 0, scores=np.array(data.scores, np.float32) if data.score else None)
    if config.data.subsample:
        examples = draw(examples, config.data.subsample, config.seed, config.data.train)
    if config.data.folds:
        of, groups = in_folds(examples.columns, config.data.folds, config.seed)
        return obstacle_to_folds(of, groups, examples.scores, folds_spec(config))
    spec = held_out_spec(config)
    return obstacle(spec, examples, split_rows(spec, examples))


def size_fields(rows: int, alone: bool, classes: int, set_already: Mapping[str, Any]) -> dict[str, Any]:
    """The batch size, the passes or steps, the learning rate and the steps between evaluations."""
    size, most = (64, 64) if alone and rows >= 64 else (16, 128)
    while size < most and (rows >= 64 * size or size < min(2 * classes, rows // 4)):
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
        "eval.every": score_every if (score_every := (steps or epochs * epoch) // 10) > FEW_STEPS // 10 else 0,
    }


def fitting_length(model: Pretrained, texts: Sequence[str]) -> int:
    """The length that holds all of these texts but one in a hundred, at most the model's own."""
    lengths = [len(ids) for ids in model.tokenizer(list(texts), model.max_length)]
    wanted = int(np.percentile(lengths, 99)) if lengths else SHORTEST
    return min(model.max_length, max(SHORTEST, -(-wanted // STEP) * STEP))


def inspect_data(spec: DataSpec, classes: bool = True) -> DataSummary:
    """Reads the training data to see what they are, `classes` too; refuses sources of different kinds."""
    read_classes = Classes() if classes else None
    files = [file for name in split_sources(spec.train) for file in ([name] if prefix_of(name) else files_of(name))]
    parts = [_inspect_file(spec, file, classes=read_classes) for file in files]
    if graded := next((data.score for data in parts if data.score), ""):  # in one of the files
        parts = [
            _inspect_file(spec, file, graded) if data.ones == graded else data
            for file, data in zip(files, parts, strict=True)
        ]
    kinds = list(dict.fromkeys(data.kind for data in parts))
    if read_classes is not None and (why := _no_classes(parts, [*read_classes])):
        if spec.columns["label"]:
            raise UserError(f"{option('data', spec.train)}: {why}; bring two or more, or leave out data.columns.label")
        processes.say(f"tune: {spec.train}: {why}; it is trained as sentences alone")
        return inspect_data(spec, classes=False)
    if len({(data.width == 1, data.positives, data.label, data.score) for data in parts}) > 1:
        problem = f"has {' and '.join(kinds)}; tune on data of one kind"
        raise UserError(f"{option('data', spec.train)}: {problem}")
    texts = [text for data in parts for text in data.texts]
    rows = sum(data.rows for data in parts)
    anchors, positives = ([text for data in parts for text in data.pairs[place]] for place in range(2))
    scores = [score for data in parts for score in data.scores]
    numbers = [number for data in parts for number in data.classes]
    whole = parts[0]._replace(texts=texts, pairs=(anchors, positives), scores=scores, classes=numbers)
    return whole._replace(rows=min(rows, spec.subsample or rows))


def _no_classes(parts: Sequence[DataSummary], names: Sequence[str]) -> str:
    """Why the labels of these files, whose values have these names, are not classes, as text; "" if they are."""
    rows, columns = sum(len(data.classes) for data in parts), {data.label for data in parts}
    if columns == {""} or any(data.width > 1 for data in parts):
        return ""
    if len(columns) > 1:
        return "not all of its files have a column of classes, of one name"
    holds = f"the column {columns.pop()!r:.60} holds"
    if len(names) < 2:
        return f"{holds} one class alone, {one_line(names[0])!r}" if names else f"{holds} nothing"
    if fraction := min((number for number in _numbers({*names}) if number % 1), default=0.0):
        return f"{holds} numbers such as {fraction:g}, which are not classes"
    return f"{holds} {len(names)} different values in {rows} rows, not classes" if 2 * len(names) > rows else ""


def _inspect_file(spec: DataSpec, name: str, graded: str = "", classes: Classes | None = None) -> DataSummary:
    columns, positives, ones = dict(spec.columns), spec.positives, ""
    columns["score"] = columns["score"] or graded
    if not positives and not columns["score"] and (columns["label"] or not columns["anchor"]):
        kind, column = find_relation(name, columns)
        columns, ones = (columns | {kind: column}, "") if kind else (columns, column)
        positives = "entailment" if kind == "label" else ""
    source = open_source(name, columns, positives, False, pairs=False)
    label, score = columns["label"], columns["score"]
    if source.width + source.negatives.lists > 1 or not (label or not columns["anchor"]):
        classes = None
    elif classes is not None:
        label = columns["label"] = next(iter([label] if label else of_values(source.names, USUAL_VALUES["label"])), "")
        classes = classes if label else None
    if classes is not None:
        source = open_source(name, columns, "", False, pairs=False, classes=classes)
    if source.width != 2:
        positives = score = ""
    if score and not (spec.scores and spec.scores.of_candidates):
        source = open_source(name, columns, positives, False, Scores("data.columns.score"), pairs=False)
    rows, texts = 0, list[str]()
    pairs, scores, numbers = (list[str](), list[str]()), list[float](), list[int]()
    for row in source.rows:
        sentences, number = source.read(row)
        wanted = number is not None if classes is not None else not positives or number == LABELS.index(positives)
        if not (all(sentences) and wanted):
            continue
        if source.score is not None:
            if (grade := source.read_score(row)) is None:
                continue
            scores.append(grade)
        rows += 1
        texts += sentences if rows <= LOOKED_AT else []
        if classes is not None and number is not None:
            numbers.append(number)
        for texts_of_role, text in zip(pairs, sentences[:2] if sentences[1:] or numbers else (), strict=False):
            texts_of_role.append(text)
    value = score or (label if classes is not None else "")
    read = tuple(source.names[place] for place in source.chosen) + ((value,) if value else ())
    width = source.width + source.negatives.lists
    return DataSummary(rows, width, positives, label, score, texts, read, pairs, scores, ones, numbers)


def find_relation(name: str, columns: Mapping[str, str]) -> tuple[str, str]:
    """The column of a table of pairs that says how their sentences relate: "label" or "score", and its name.

    The first is empty where all pairs are positives; the second then names scores that are all 1, if there are any.
    A column of labels or numbers whose meaning cannot be known is refused.
    """
    names, _, where, ordered = open_table(name)
    scores, unknown, constant, ones = of_values(names, SCORES), "", "", ""
    for column in [columns["label"]] if columns["label"] else [*scores, *of_values(names, USUAL_VALUES["label"])]:
        chosen = choose_columns(names, {**columns, "label": column}, where, ordered)
        if column not in names or len(chosen.places) != 2:  # other rows have no use for them
            continue
        values = _distinct(name, column)
        of_sentences = (plain(names[chosen.places[0]]), plain(names[chosen.places[1]])) in SENTENCE_PAIRS
        kind = classify_values(values, column in scores, of_sentences)
        if kind == "score" and plain(column) == "gold" and not of_sentences:
            continue  # the right answers, in numbers
        if kind:
            return kind, column
        numbers, explains = _numbers(values), column in scores and are_long([*map(str, values)])
        if column in scores and numbers == {1}:
            ones = ones or column
        elif column in scores and len(numbers) == 1:
            constant = constant or column
        elif values and not explains and (columns["label"] or not is_content(column)):
            unknown = unknown or f"{where}: {_unknown(values, column)}"
    if unknown:
        raise UserError(unknown)
    if constant:
        warnings.warn(
            f"{where}: its column {constant!r:.60} holds one score alone, so nothing ranks pairs", stacklevel=2
        )
        return "score", constant
    chosen = choose_columns(names, columns, where, ordered)
    if len(chosen.places) == 2:
        pair = [names[place] for place in chosen.places]
        if numbers_of_column := numbers_beside(name, chosen):
            column, texts = next(iter(numbers_of_column.items()))
            raise UserError(f"{where}: its column {column!r:.60} {perhaps_scores(column, texts, pair)}")
    return "", ones


def _distinct(name: str, column: str) -> set[Any]:
    """The values of a column but for blank ones; of many, the first."""
    names, rows, _, _ = open_table(name, [column])
    place, values = list(names).index(column), set[Any]()
    for row in rows:
        value = row.fields[place]
        if value not in (None, MISSING) and str(value).strip() and value == value:
            values.add(value if isinstance(value, Hashable) else str(value))
        if len(values) > MANY_LABELS:
            break
    return values


def classify_values(values: AbstractSet[Any], are_scores: bool, of_sentences: bool) -> str:
    """The kind of a column: "label" for NLI's labels, "score" for scores, 0 and 1 among them; otherwise "".

    Numbers that are all the same rank nothing, so they are no scores. 0, 1 and 2 of a query and a passage, not of two
    sentences, grade its relevance.
    """
    names = {str(value.name if isinstance(value, NamedLabel) else value).strip().lower() for value in values}
    if LABELS[0] in names and names <= {*LABELS, *UNLABELLED}:
        return "label"
    numbers = _numbers(values)
    if len(numbers) > 1 and (are_scores or numbers == {0, 1} or any(number % 1 for number in numbers)):
        return "score"
    return "label" if of_sentences and numbers - {-1} == {0, 1, 2} else ""


def _numbers(values: AbstractSet[Any]) -> set[float]:
    """The values as numbers; empty if not all are."""
    try:
        return {number for value in values if (number := parse_score(value, "")) is not None}
    except UserError:
        return set()


def _unknown(values: AbstractSet[Any], column: str) -> str:
    """The remedy for a column of labels or numbers that `classify_values` does not know."""
    few = sorted({*map(one_line, values)})
    holds = f"the column {column!r:.60} holds {', '.join(few[:3])}{' …' * (len(few) > 3)}"
    if not all(map(is_number, few)):
        spellings = f"0 and 1 (whether two sentences mean the same), scores, or {', '.join(LABELS)}"
        return f"{holds}; write {spellings}, or remove the column"
    if not _numbers(values):
        return f"{holds}; write plain numbers, such as 0.85, or remove the column"
    return (
        f"{holds}; set data.columns.score={quote(column)} if they grade the pairs, data.positives=entailment if they "
        "are labels of NLI, or remove the column"
    )
