"""The graded pairs of SentEval's similarity sets: `sts:FOLDER:TASK[:SPLIT]` as a source of pairs with scores."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from simcse_jax.data.lines import open_text
from simcse_jax.data.rows import Row, Table
from simcse_jax.data.separated import read_tabs
from simcse_jax.data.sts_texts import PREFIX, SINGLE_FILES, SUBSETS
from simcse_jax.errors import UserError, no_such
from simcse_jax.host.storage import local_path

COLUMNS = ["sentence1", "sentence2", "score"]
# The columns of the score and of the sentences. SICK's are pair_ID, sentence_A, sentence_B, relatedness_score, and
# entailment_judgment, with a header.
PLACES = {"STSBenchmark": (4, 5, 6), "SICKRelatedness": (3, 1, 2)}
HEADERS = ("SICKRelatedness",)


def of_task(data: str) -> tuple[str, str, str] | None:
    """The folder, the task and the split of FOLDER:TASK[:SPLIT]; None if no task is named.

    The split is `train` unless it is given, and `test` for the years, which have no other.
    """
    folder, colon, last = data.rpartition(":")
    if colon and last in (*SUBSETS, *SINGLE_FILES):
        return folder, last, "test" if last in SUBSETS else "train"
    before, colon, task = folder.rpartition(":")
    return (before, task, last) if colon and task in (*SUBSETS, *SINGLE_FILES) else None


def read_sts_pairs(data: str) -> Table:
    """Three columns, sentence1, sentence2 and score: the pairs of one split of one set; a score may be empty.

    Args:
      data: FOLDER:TASK[:SPLIT], see `of_task`; the folder is SentEval's `data/downstream`.
    """
    found = of_task(data)
    assert found is not None
    folder, task, split = local_path(found[0]), *found[1:]
    splits = ("test",) if task in SUBSETS else tuple(SINGLE_FILES[task])
    if split not in splits:
        raise no_such(f"{PREFIX}{data}", "split", split, splits)
    files = files_of_task(folder, task, split)
    if missing := next((file for file in files if not file.is_file()), None):
        raise UserError(
            f"{PREFIX}{data}: no file {missing}; {found[0] or 'it'} must be SentEval's data/downstream, with STS and "
            "SICK"
        )
    rows = (row for file in files for row in _rows_of(file, task))
    return COLUMNS, rows


def files_of_task(folder: Path, task: str, split: str) -> list[Path]:
    """The files with a split's sentences."""
    if task in SINGLE_FILES:
        return [folder / SINGLE_FILES[task][split]]
    return [folder / "STS" / f"{task}-en-test" / f"STS.input.{subset}.txt" for subset in SUBSETS[task]]


def _rows_of(file: Path, task: str) -> Iterator[Row]:
    return read_year(file) if task in SUBSETS else read_places(file, PLACES[task], skip_header=task in HEADERS)


def read_places(path: Path, columns: Sequence[int], skip_header: bool = False) -> Iterator[Row]:
    """The pairs of tab-separated lines, each with the fields `COLUMNS`.

    Args:
      path: the file.
      columns: the places of the score, of the first and of the second sentence.
      skip_header: whether the first line is none of them.
    """
    for row in itertools.islice(read_tabs(path), int(skip_header), None):
        fields = row.fields
        if fields == [""]:
            continue
        if len(fields) <= max(columns):
            raise UserError(f"{row.where}: {len(fields)} tab-separated columns, expected at least {max(columns) + 1}")
        score, first, second = (fields[column] for column in columns)
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
        if len(fields) < 2 and score.strip():
            raise UserError(f"{path}: line {number}: expected two sentences, separated by a tab")
        yield Row(f"{gold_path}: line {number}", [*fields[:2], *[""] * (2 - len(fields)), score])
