"""The other pairs of SimCSE's Table 4: QQP, ParaNMT and Flickr30k; and Flickr30k's captions.

The authors did no "special processing" and downloaded the original files (princeton-nlp/SimCSE, issues 236 and 238).
"""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from simcse_jax.data.building.reading import BLANK, Tally, read_columns, sentence
from simcse_jax.data.rows import Row, open_text
from simcse_jax.errors import UserError

QUORA = "quora_duplicate_questions.tsv"
QUESTION_FILES = ("train.tsv", QUORA)
PARAPHRASE_FILES = ("para-nmt-5m*.txt", "para-nmt-50m*.txt")
CAPTION_FILES = ("results*.token", "results.csv")
QUESTIONS = (("question1", "question2", "is_duplicate"), ("question1", "question2", "label"))
BROKEN = "with a wrong number of columns"


def qqp(files: Iterable[str | Path], tally: Tally) -> Iterator[tuple[str, ...]]:
    """The duplicates among Quora's pairs of questions.

    The paper's 134k are those of GLUE's training set; Quora's whole release has about 149k.
    """
    for file in files:
        is_glue = isinstance(file, Path) and file.suffix.lower() == ".tsv" and file.name != QUORA
        for row in _of_glue(Path(file), tally) if is_glue else read_columns(file, QUESTIONS):
            tally.see()
            label = str(row.fields[2]).strip()
            if label not in ("0", "1") and any(row.fields):  # a blank line has no label
                raise UserError(f"{row.where}: the label is {row.fields[2]!r:.60}; it must be 0 or 1")
            if label == "0":
                tally.dropped["no duplicates"] += 1
                continue
            yield from _pair(row, tally)


def _of_glue(path: Path, tally: Tally) -> Iterator[Row]:
    """GLUE's table: some rows lack columns, and quotation marks are ordinary characters."""
    lines = (line.split("\t") for line in open_text(path))
    names = next(lines, [])
    places = [place for place, name in enumerate(names) if name in QUESTIONS[0]]
    if len(places) != len(QUESTIONS[0]):
        raise UserError(f"{path}: its columns are {', '.join(names)}; it must have {', '.join(QUESTIONS[0])}")
    for number, fields in enumerate(lines, 2):
        if len(fields) == len(names):
            yield Row(f"{path}: line {number}", [fields[place] for place in places])
        else:
            tally.see()
            tally.dropped[BROKEN] += 1


def paranmt(files: Iterable[str | Path], tally: Tally) -> Iterator[tuple[str, ...]]:
    """The pairs of ParaNMT. A line has a sentence, a tab, its paraphrase, and perhaps a score."""
    for path in map(Path, files):
        for number, line in enumerate(open_text(path), 1):
            tally.see()
            fields = line.split("\t")
            if len(fields) in (2, 3):
                yield from _pair(Row(f"{path}: line {number}", fields), tally)
            else:
                tally.dropped[BROKEN] += 1


def _pair(row: Row, tally: Tally) -> Iterator[tuple[str, ...]]:
    first, second = (sentence(field, row.where) for field in row.fields[:2])
    if first and second:
        yield first, second
    else:
        tally.dropped[BLANK] += 1


def read_captions(files: Iterable[str | Path], tally: Tally) -> dict[str, list[str]]:
    """The captions of each image of Flickr30k, in the order of the file.

    Files: `results_20130124.token` (IMAGE#NUMBER, a tab, the caption) or `results.csv`, whose columns image_name,
    comment_number and comment have bars in between. A folder may have both; a caption counts once.
    """
    captions: dict[str, dict[str, str]] = {}
    for path in map(Path, files):
        bars = path.suffix.lower() == ".csv"
        for number, line in enumerate(open_text(path), 1):
            if not line.strip() or (bars and number == 1):
                continue
            tally.see()
            head, _, text = line.partition("\t")
            parts = line.split("|", 2) if bars else [*head.partition("#")[::2], text]
            image, place, caption = (part.strip() for part in [*parts, "", ""][:3])
            if not (image and place.isdigit()):
                tally.dropped["in a line of another form"] += 1
            elif not caption:
                tally.dropped[BLANK] += 1
            elif place in captions.get(image, {}):
                tally.dropped["with the image and number of another"] += 1
            else:
                captions.setdefault(image, {})[place] = sentence(caption, f"{path}: line {number}")
    tally.notes.append(f"{len(captions):,} images")
    return {image: list(distinct.values()) for image, distinct in captions.items()}


def flickr_pairs(files: Iterable[str | Path], tally: Tally) -> Iterator[tuple[str, ...]]:
    """Any two captions of the same image: ten pairs for five captions, 317,830 for 31,783 images (the paper's 318k)."""
    for captions in read_captions(files, tally).values():
        if len(captions) < 2:
            tally.dropped["the only one of an image"] += 1
        yield from itertools.combinations(captions, 2)
