"""SentEval's similarity sets as sources: `sts:FOLDER`, sentences; `sts:FOLDER:TASK[:SPLIT]`, pairs with scores."""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from simcse_jax.data.rows import Row, Table, open_text
from simcse_jax.data.separated import read_tabs
from simcse_jax.errors import UserError, no_such
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
COLUMNS = ["sentence1", "sentence2", "score"]
# The columns of the score and of the sentences. SICK's are pair_ID, sentence_A, sentence_B, relatedness_score, and
# entailment_judgment, with a header.
PLACES = {"STSBenchmark": (4, 5, 6), "SICKRelatedness": (3, 1, 2)}
HEADERS = ("SICKRelatedness",)


def read_sts(data: str) -> Table:
    """The sentences of FOLDER, or the pairs of FOLDER:TASK[:SPLIT]."""
    task = of_task(data)
    return _read_texts(data) if task is None else _read_graded(data, *task)


def _read_texts(data: str) -> Table:
    """One column: both sentences of all pairs of STS12 to STS16, STS-B and SICK-R, in all splits, in this order.

    This includes repeated sentences, and pairs without a score as in STS15 and STS16. Counted this way, the seven sets
    have 44,596 pairs (3,108, 1,500, 3,750, 8,500, 9,183, 8,628 and 9,927): the 89,192 sentences that ConSERT trains on.
    Missing sets are left out, with a note.
    """
    from simcse_jax.devices import processes  # imports JAX

    files = {task: files_of(local_path(data), task) for task in (*SUBSETS, *SINGLE_FILES)}
    if not data or not any(files.values()):
        raise UserError(f"{PREFIX}{data}: no STS set there; expected SentEval's data/downstream, with STS and SICK")
    if missing := [task for task, task_files in files.items() if not task_files]:
        processes.say(f"{PREFIX}{data}: {', '.join(missing)} not found, and left out")
    by_file = (read_pairs(file, task) for task, task_files in files.items() for file in task_files)
    return ["sentence"], itertools.chain.from_iterable(by_file)


def sts_version(data: str) -> str:
    """The sizes of all files in the folder of `read_sts`, and when they were written."""
    folder = local_path((of_task(data) or (data,))[0])
    files = [file for task in (*SUBSETS, *SINGLE_FILES) for file in files_of(folder, task) if file.is_file()]
    stamps = [(str(file.relative_to(folder)), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(stamps).encode()).hexdigest()


def files_of(folder: Path, task: str) -> list[Path]:
    """All files of a set, including missing ones; none if the folder has none of them."""
    files = [file for split in SINGLE_FILES.get(task, ("test",)) for file in files_of_task(folder, task, split)]
    exists = files[0].parent.is_dir() if task in SUBSETS else any(file.is_file() for file in files)
    return files if exists else []


def read_pairs(path: Path, task: str) -> Iterator[Row]:
    """Both sentences of each pair of a file, each as a row."""
    for row in _read_file(path, task):
        yield from (Row(row.where, [sentence]) for sentence in row.fields[:2])


def of_task(data: str) -> tuple[str, str, str] | None:
    """The folder, task and split of FOLDER:TASK[:SPLIT]; None without a task.

    The split is `train` by default, and `test` for the years, which have no other.
    """
    folder, colon, last = data.rpartition(":")
    if colon and last in (*SUBSETS, *SINGLE_FILES):
        return folder, last, "test" if last in SUBSETS else "train"
    before, colon, task = folder.rpartition(":")
    return (before, task, last) if colon and task in (*SUBSETS, *SINGLE_FILES) else None


def _read_graded(data: str, name: str, task: str, split: str) -> Table:
    """Three columns, sentence1, sentence2 and score: the pairs of one split of one set; a score may be empty."""
    splits = ("test",) if task in SUBSETS else tuple(SINGLE_FILES[task])
    if split not in splits:
        raise no_such(f"{PREFIX}{data}", "split", split, splits)
    files = files_of_task(local_path(name), task, split)
    return COLUMNS, itertools.chain.from_iterable(_read_file(file, task) for file in files)


def files_of_task(folder: Path, task: str, split: str) -> list[Path]:
    """The files with a split's sentences."""
    if task in SINGLE_FILES:
        return [folder / SINGLE_FILES[task][split]]
    return [folder / "STS" / f"{task}-en-test" / f"STS.input.{subset}.txt" for subset in SUBSETS[task]]


def _read_file(path: Path, task: str) -> Iterator[Row]:
    return read_year(path) if task in SUBSETS else read_places(path, PLACES[task], task in HEADERS)


def read_places(path: Path, columns: Sequence[int], skip_header: bool = False) -> Iterator[Row]:
    """The pairs of tab-separated lines that are not blank, each with the fields `COLUMNS`.

    Args:
      columns: of the score, the first and the second sentence.
    """
    for row in itertools.islice(read_tabs(path), int(skip_header), None):
        if row.fields == [""]:
            continue
        count = len(row.fields)
        if count <= max(columns):
            raise UserError(f"{row.where}: {count} tab-separated columns, expected at least {max(columns) + 1}")
        score, first, second = (row.fields[column] for column in columns)
        yield Row(row.where, [first, second, score])


def read_year(path: Path) -> Iterator[Row]:
    """The pairs of a year's subset, each with the fields `COLUMNS`; its scores are in another file, line by line.

    Args:
      path: STS.input.SUBSET.txt; the scores are in STS.gs.SUBSET.txt next to it. A row is where its score is.
    """
    gold_path = path.with_name(path.name.replace("STS.input.", "STS.gs.", 1))
    lines, scores = list(open_text(path)), list(open_text(gold_path))
    if len(lines) != len(scores):
        raise UserError(f"{path} has {len(lines)} lines, {gold_path.name} has {len(scores)}")
    for number, (line, score) in enumerate(zip(lines, scores, strict=True), 1):
        fields = line.split("\t")
        if len(fields) < 2:
            raise UserError(f"{path}: line {number}: expected two sentences, separated by a tab")
        yield Row(f"{gold_path}: line {number}", [*fields[:2], score])
