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
LINES = {
    "TREC": f"LABEL:fine question, with a label of {', '.join(QUESTIONS)}",
    "SST2": "a sentence and 0 or 1, separated by a tab",
    "MRPC": "0 or 1, two ids and two sentences, separated by tabs",
}


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
    return text.removesuffix("\n").split("\n") if text else []


def _parse(task: str, line: str) -> _Row:
    """A line of a task with splits; a ValueError if it is another kind of line."""
    if task == "TREC":
        label, rest = line.strip().split(":", 1)
        _, question = rest.split(" ", 1)  # after the fine label
        return _Row(_words(question), "", QUESTIONS.index(label))
    if task == "SST2":
        sentence, label = line.strip().split("\t")
        return _Row(_words(sentence), "", ("0", "1").index(label.strip()))
    label, _, _, first, second = line.strip().split("\t")
    return _Row(_words(first), _words(second), ("0", "1").index(label.strip()))


def _split_file(path: Path, task: str) -> list[_Row]:
    rows = []
    for number, line in enumerate(_latin_lines(path) if task == "TREC" else open_text(path), 1):
        if not line.strip() or (number == 1 and task == "MRPC"):  # a header
            continue
        try:
            rows.append(_parse(task, line))
        except ValueError:
            raise UserError(f"{path}: line {number} is {line!r:.60}; {task} has lines of {LINES[task]}") from None
    return rows


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
    fewest = 1 if "dev" in splits else FOLDS
    if len(classes) < 2 or min(counts) < fewest:
        sizes = f"{len(classes)} classes of {min(counts)} sentences or more"
        raise UserError(f"{where}: {name} has {sizes}; a classifier needs two, each of {fewest} or more")
    second = [row.second for row in rows] if name == "MRPC" else []
    return Task([row.first for row in rows], second, labels, splits, len(QUESTIONS) if name == "TREC" else 2)


def read_task(folder: Path, task: str) -> Task | None:
    """One task of a SentEval folder; None if its data set is missing."""
    files = CLASS_FILES[task] if task in CLASS_FILES else tuple(SPLIT_FILES[task].values())
    where = folder / Path(files[0]).parent
    if not where.is_dir():
        return None
    if task in CLASS_FILES:
        texts = [
            (line, label) for label, file in zip((1, 0), files, strict=True) for line in _latin_lines(folder / file)
        ]
        return _make_task(task, str(where), {"train": [_Row(_words(line), "", label) for line, label in texts]})
    parts = {split: _split_file(folder / file, task) for split, file in SPLIT_FILES[task].items()}
    return _make_task(task, str(where), parts)


def read(data: str, tasks: Sequence[str]) -> tuple[dict[str, Task], list[str]]:
    """The tasks of a SentEval folder.

    Returns:
      Tasks by name, in the order of `tasks`, and the names of those that are missing.
    """
    folder = local_path(data)
    present = {task: loaded for task in tasks if (loaded := read_task(folder, task))}
    if not present:
        raise UserError(
            f"{data}: no {', '.join(tasks)} there; expected SentEval's data/downstream, with MR, SST and so on"
        )
    return present, [task for task in tasks if task not in present]
