"""The texts of SentEval's similarity sets, without their scores: `sts:FOLDER` as a source of sentences."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from simcse_jax.data.lines import open_text
from simcse_jax.data.rows import Row, Table
from simcse_jax.data.separated import read_tabs
from simcse_jax.errors import UserError
from simcse_jax.host.storage import local_path

PREFIX = "sts:"
SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
SINGLE_FILES = {
    "STSBenchmark": {
        "train": "STS/STSBenchmark/sts-train.csv",
        "dev": "STS/STSBenchmark/sts-dev.csv",
        "test": "STS/STSBenchmark/sts-test.csv",
    },
    "SICKRelatedness": {
        "train": "SICK/SICK_train.txt",
        "dev": "SICK/SICK_trial.txt",
        "test": "SICK/SICK_test_annotated.txt",
    },
}
SENTENCES = {"STSBenchmark": (5, 6), "SICKRelatedness": (1, 2)}  # their columns; SICK's files have a header


def read_sts_texts(data: str) -> Table:
    """One column: both sentences of all pairs of STS12 to STS16, STS-B and SICK-R, of all splits, in this order.

    Pairs without a score count too, which STS15 and STS16 have, and sentences are as often as the files repeat them.
    So counted, the seven sets have 44,596 pairs: the 89,192 sentences that ConSERT trains on (3,108, 1,500, 3,750,
    8,500, 9,183, 8,628 and 9,927 pairs). A set that the folder lacks is left out, and named.

    Args:
      data: SentEval's `data/downstream`.
    """
    from simcse_jax.devices import processes  # imports JAX

    folder = local_path(data)
    if not data or not folder.is_dir():
        raise UserError(f"{PREFIX}{data}: no such folder; it must be SentEval's data/downstream, with STS and SICK")
    files = {task: files_of(folder, task) for task in (*SUBSETS, *SINGLE_FILES)}
    if not any(files.values()):
        raise UserError(f"{PREFIX}{data}: no STS set there; expected SentEval's data/downstream, with STS and SICK")
    if missing := [task for task, found in files.items() if not found]:
        processes.say(f"{PREFIX}{data}: {', '.join(missing)} not found, and left out")

    def rows() -> Iterator[Row]:
        for task, found in files.items():
            for file in found:
                yield from read_pairs(file, task)

    return ["sentence"], rows()


def sts_version(data: str) -> str:
    """The sizes of all files that `read_sts_texts` reads, and when they were written."""
    folder = local_path(data)
    files = [file for task in (*SUBSETS, *SINGLE_FILES) for file in files_of(folder, task) if file.is_file()]
    found = [(str(file.relative_to(folder)), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(found).encode()).hexdigest()


def files_of(folder: Path, task: str) -> list[Path]:
    """All files with the sentences of a set, those that are missing too; none if the folder has none of them."""
    if task in SINGLE_FILES:
        files = [folder / file for file in SINGLE_FILES[task].values()]
        return files if any(file.is_file() for file in files) else []
    year = folder / "STS" / f"{task}-en-test"
    return [year / f"STS.input.{subset}.txt" for subset in SUBSETS[task]] if year.is_dir() else []


def read_pairs(path: Path, task: str) -> Iterator[Row]:
    """Both sentences of each pair of a file, one after the other, each as a row."""
    columns = SENTENCES.get(task, (0, 1))
    for number, row in enumerate(_rows_of_year(path) if task in SUBSETS else read_tabs(path), 1):
        if (task == "SICKRelatedness" and number == 1) or (task in SENTENCES and row.fields == [""]):
            continue
        if len(row.fields) <= max(columns):
            expected = "two sentences, separated by a tab" if task in SUBSETS else f"{max(columns) + 1} columns or more"
            raise UserError(f"{row.where}: expected {expected}")
        yield from (Row(row.where, [row.fields[column]]) for column in columns)


def _rows_of_year(path: Path) -> Iterator[Row]:
    """Line n of a year's files is about pair n, so no record goes over several lines."""
    return (Row(f"{path}: line {number}", line.split("\t")) for number, line in enumerate(open_text(path), 1))
