"""The other pairs of SimCSE's Table 4: QQP, ParaNMT and Flickr30k; and Flickr30k's captions.

The authors did no "special processing" and downloaded the original files (princeton-nlp/SimCSE, issues 236 and 238).
"""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from simcse_jax.data.building.reading import BLANK, Tally, columns, open_table, sentence
from simcse_jax.data.rows import Row, Table, open_text
from simcse_jax.errors import UserError

QUORA = "quora_duplicate_questions.tsv"
QUESTION_FILES = ("train.tsv", QUORA)
PARAPHRASE_FILES = ("para-nmt-5m*.txt", "para-nmt-50m*.txt")
CAPTION_FILES = ("results*.token", "results.csv")
QUESTIONS = (("question1", "question2", "is_duplicate"), ("question1", "question2", "label"))
BROKEN = "with a wrong number of columns"


def qqp(files: Iterable[str | Path], tally: Tally) -> Iterator[tuple[str, ...]]:
    """The duplicates among Quora's pairs of questions.

    The paper's 134k are those of GLUE's training set; Quora's whole release has about 149k. A few rows of GLUE's file
    lack columns.
    """
    for file in files:
        for row in columns(_questions(file, tally), QUESTIONS, str(file)):
            tally.see()
            if str(row.fields[2]).strip() not in ("0", "1") and any(row.fields):  # a blank line has no label
                raise UserError(f"{row.where}: the label is {row.fields[2]!r:.60}; it must be 0 or 1")
            if str(row.fields[2]).strip() == "0":
                tally.drop("no duplicates")
                continue
            yield from _pair(row, tally)


def _questions(file: str | Path, tally: Tally) -> Table:
    if isinstance(file, Path) and file.suffix.lower() == ".tsv" and file.name != QUORA:
        return _with_tabs(file, tally)
    return open_table(file)


def _with_tabs(path: Path, tally: Tally) -> Table:
    """GLUE's table: broken rows are dropped, not refused, and quotation marks are ordinary characters."""
    lines = (line.split("\t") for line in open_text(path))
    names = next(lines, [])

    def rows() -> Iterator[Row]:
        for number, fields in enumerate(lines, 2):
            if len(fields) == len(names):
                yield Row(f"{path}: line {number}", fields)
            else:
                tally.see()
                tally.drop(BROKEN)

    return names, rows()


def paranmt(files: Iterable[str | Path], tally: Tally) -> Iterator[tuple[str, ...]]:
    """The pairs of ParaNMT. A line has a sentence, a tab, its paraphrase, and perhaps a score.

    The paper's 5m are those of the release of about five million filtered pairs, `para-nmt-5m-processed.txt`.
    """
    for path in map(_text_file, files):
        for number, line in enumerate(open_text(path), 1):
            tally.see()
            fields = line.split("\t")
            if len(fields) not in (2, 3):
                tally.drop(BROKEN)
                continue
            yield from _pair(Row(f"{path}: line {number}", fields), tally)


def _text_file(file: str | Path) -> Path:
    if isinstance(file, str):
        raise UserError(f"--source {file}: must be a file or a folder")
    return file


def _pair(row: Row, tally: Tally) -> Iterator[tuple[str, ...]]:
    first, second = (sentence(field, row.where) for field in row.fields[:2])
    if first and second:
        yield first, second
    else:
        tally.drop(BLANK)


def read_captions(files: Iterable[str | Path], tally: Tally) -> dict[str, list[str]]:
    """The captions of each image of Flickr30k, in the order of the file.

    Files: `results_20130124.token` (IMAGE#NUMBER, a tab, the caption) or `results.csv`, whose columns image_name,
    comment_number and comment have bars in between. A folder may have both; a caption counts once.
    """
    captions: dict[str, dict[str, str]] = {}
    for path in map(_text_file, files):
        bars = path.suffix.lower() == ".csv"
        for number, line in enumerate(open_text(path), 1):
            if not line.strip() or (bars and number == 1):
                continue
            tally.see()
            image, place, text = _caption(line, bars)
            if not (image and place.isdigit()):
                tally.drop("in a line of another form")
            elif not (caption := sentence(text, f"{path}: line {number}")):
                tally.drop(BLANK)
            elif place in captions.get(image, {}):
                tally.drop("with the image and number of another")
            else:
                captions.setdefault(image, {})[place] = caption
    tally.notes.append(f"{len(captions):,} images")
    return {image: list(distinct.values()) for image, distinct in captions.items()}


def _caption(line: str, bars: bool) -> tuple[str, str, str]:
    if bars:
        image, place, text = ([part.strip() for part in line.split("|", 2)] + ["", ""])[:3]
        return image, place, text
    name, _, text = line.partition("\t")
    image, _, place = name.partition("#")
    return image, place.strip(), text


def flickr_pairs(files: Iterable[str | Path], tally: Tally) -> Iterator[tuple[str, ...]]:
    """Any two captions of the same image: ten pairs for five captions, 317,830 for 31,783 images (the paper's 318k)."""
    for captions in read_captions(files, tally).values():
        if len(captions) < 2:
            tally.drop("the only one of an image")
        yield from itertools.combinations(captions, 2)
