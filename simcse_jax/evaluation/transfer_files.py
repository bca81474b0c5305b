"""SentEval's transfer tasks in the layout of its download: labelled sentences, and pairs of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from simcse_jax.data.rows import open_text
from simcse_jax.errors import UserError
from simcse_jax.host.storage import local_path

FOLDS = 10

# The file of label 1 comes first, as in SentEval.
CLASS_FILES = {
    "MR": ("MR/rt-polarity.pos", "MR/rt-polarity.neg"),
    "CR": ("CR/custrev.pos", "CR/custrev.neg"),
    "SUBJ": ("SUBJ/subj.objective", "SUBJ/subj.subjective"),
    "MPQA": ("MPQA/mpqa.pos", "MPQA/mpqa.neg"),
}
SPLIT_FILES = {
    "SST2": {
        "train": "SST/binary/sentiment-train",
        "dev": "SST/binary/sentiment-dev",
        "test": "SST/binary/sentiment-test",
    },
    "TREC": {"train": "TREC/train_5500.label", "test": "TREC/TREC_10.label"},
    "MRPC": {"train": "MRPC/msr_paraphrase_train.txt", "test": "MRPC/msr_paraphrase_test.txt"},
}
QUESTIONS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")  # TREC's labels


class Task(NamedTuple):
    """Labelled sentences, or pairs of them, in SentEval's order.

    `splits` maps those of train, dev and test that the data set has to their rows.
    """

    first: list[str]
    second: list[str]  # empty for a task of single sentences
    labels: Int[np.ndarray, " N"]
    splits: dict[str, slice]
    classes: int  # labels are below it


class _Row(NamedTuple):
    first: str
    second: str
    label: int


def _words(text: str) -> str:
    return " ".join(text.split())


def _latin_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="latin-1")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if "\0" in text:
        raise UserError(f"{path}: has a zero byte, so it is not Latin-1 text; it looks like UTF-16 or a binary file")
    return text.removesuffix("\n").split("\n") if text else []


def _class_file(path: Path, label: int) -> list[_Row]:
    return [_Row(_words(line), "", label) for line in _latin_lines(path)]


def _question(line: str, where: str) -> _Row:
    label, _, rest = line.strip().partition(":")
    _, space, question = rest.partition(" ")  # after the fine label
    if not space:
        raise UserError(f"{where}: expected LABEL:fine question, as in 'NUM:dist How far is it?'")
    if label not in QUESTIONS:
        raise UserError(f"{where}: {label!r} is not a label; the labels are {', '.join(QUESTIONS)}")
    return _Row(_words(question), "", QUESTIONS.index(label))


def _binary(text: str, where: str) -> int:
    if text.strip() not in ("0", "1"):
        raise UserError(f"{where}: the label {text!r} is neither 0 nor 1")
    return int(text)


def _sentiment(line: str, where: str) -> _Row:
    fields = line.strip().split("\t")
    if len(fields) != 2:
        raise UserError(f"{where}: {len(fields)} tab-separated columns, expected a sentence and a label")
    return _Row(_words(fields[0]), "", _binary(fields[1], where))


def _paraphrase(line: str, where: str) -> _Row:
    fields = line.strip().split("\t")
    if len(fields) != 5:
        raise UserError(f"{where}: {len(fields)} tab-separated columns, expected a label, two ids and two sentences")
    return _Row(_words(fields[3]), _words(fields[4]), _binary(fields[0], where))


def _split_file(path: Path, task: str) -> list[_Row]:
    lines = _latin_lines(path) if task == "TREC" else open_text(path)
    parse = {"TREC": _question, "SST2": _sentiment, "MRPC": _paraphrase}[task]
    header = 1 if task == "MRPC" else 0
    return [
        parse(line, f"{path}: line {number}")
        for number, line in enumerate(lines, 1)
        if number > header and line.strip()
    ]


def _make_task(name: str, where: str, parts: dict[str, list[_Row]]) -> Task:
    """Sorts each part as SentEval does, and refuses data that no classifier can be trained on."""
    rows: list[_Row] = []
    splits: dict[str, slice] = {}
    for split, part in parts.items():
        if not part:
            raise UserError(f"{where}: no {split} sentences for {name}")
        # SentEval sorts so that batches need little padding; the folds follow from the order.
        part = sorted(part, key=lambda row: (len(row.first.split()), len(row.second.split()), row.label))
        splits[split] = slice(len(rows), len(rows) + len(part))
        rows += part
    labels = np.array([row.label for row in rows])
    classes, counts = np.unique(labels[splits["train"]], return_counts=True)
    if len(classes) < 2:
        raise UserError(f"{where}: {name}'s sentences are all of one class; a classifier needs two or more")
    if "dev" not in splits and np.min(counts) < FOLDS:
        count = f"{np.min(counts)} sentences of a class"
        raise UserError(f"{where}: {name} has {count}; {FOLDS}-fold cross-validation needs {FOLDS} or more")
    second = [row.second for row in rows] if name == "MRPC" else []
    return Task([row.first for row in rows], second, labels, splits, len(QUESTIONS) if name == "TREC" else 2)


def read_task(folder: Path, task: str) -> Task | None:
    """One task of a SentEval folder; None if its data set is missing."""
    files = CLASS_FILES[task] if task in CLASS_FILES else tuple(SPLIT_FILES[task].values())
    where = folder / Path(files[0]).parent
    if not where.is_dir():
        return None
    if task in CLASS_FILES:
        positive, negative = (folder / file for file in files)
        return _make_task(task, str(where), {"train": _class_file(positive, 1) + _class_file(negative, 0)})
    parts = {split: _split_file(folder / file, task) for split, file in SPLIT_FILES[task].items()}
    return _make_task(task, str(where), parts)


def read(data: str, tasks: Sequence[str]) -> tuple[dict[str, Task], list[str]]:
    """The tasks of a SentEval folder.

    Returns:
      Tasks by name, in the order of `tasks`, and the names of those that are missing.
    """
    folder = local_path(data)
    if not folder.is_dir():
        raise UserError(f"{data}: no such folder; transfer tasks need SentEval's data/downstream")
    by_task = {task: read_task(folder, task) for task in tasks}
    present = {task: read for task, read in by_task.items() if read is not None}
    if not present:
        raise UserError(
            f"{data}: no {', '.join(tasks)} there; expected SentEval's data/downstream, with MR, SST and so on"
        )
    return present, [task for task in tasks if task not in present]
