"""A source's rows as they go into a corpus."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from simcse_jax.choices import LABELS
from simcse_jax.data.augment import CHANGES, change_of
from simcse_jax.data.documents import REACH
from simcse_jax.data.draws import row_generator
from simcse_jax.data.examples import Source, no_examples_in, open_source
from simcse_jax.data.rows import Row
from simcse_jax.errors import UserError

SOURCE_ROWS = 2**40  # for random draws, the rows of source n are counted from n times this
NEXT = 2  # the column of `row_generator` for next sentences; changed copies have 0 and 1


class Item(NamedTuple):
    """A row."""

    texts: list[str]  # one per column
    label: int | None = None
    left_out: str = ""  # the reason, if it is left out: blank, unlabelled or unused


BLANK, UNLABELLED, UNUSED = (Item([], left_out=why) for why in ("blank", "unlabelled", "unused"))
Augmentation = Callable[[str, int, int], str]  # from a sentence, its row and its column to the changed sentence


def read_items(settings: Mapping[str, Any], name: str, number: int) -> Iterator[Item]:
    """The rows of a source, its name and number being these, of a corpus with these settings (`making.make_plan`)."""
    positives, seed = settings["positives"], settings["seed"]
    source = open_source(name, settings["columns"], positives, settings["labels"])
    rows = enumerate(source.rows, number * SOURCE_ROWS)
    if positives in REACH:
        yield from _next_sentences(source, rows, REACH[positives], seed)
    else:
        augment = settings["augment"]
        yield from _rows(source, rows, positives, make_change(augment, seed), bool(augment and augment["both"]))


def _rows(
    source: Source, numbered: Iterator[tuple[int, Row]], positives: str, change: Augmentation | None, both: bool
) -> Iterator[Item]:
    only = LABELS.index(positives) if positives in LABELS else None
    for number, row in numbered:
        texts, label = source.read(row)
        if not all(texts):
            yield BLANK
        elif source.label is not None and label is None:
            yield UNLABELLED
        elif only is not None and label != only:
            yield UNUSED
        elif change is None:
            yield Item(texts, label)
        else:
            (text,) = texts
            yield Item([change(text, number, 0) if both else text, change(text, number, 1)])


def _next_sentences(source: Source, numbered: Iterator[tuple[int, Row]], reach: int, seed: int) -> Iterator[Item]:
    """Each sentence with one of the next `reach` of its document, see `data.documents.next_sentences`."""
    lines = ((number, source.read(row)[0][0]) for number, row in numbered)
    ahead = deque(itertools.islice(lines, 1 + reach))
    while ahead:
        (number, text), *following_rows = ahead
        following = [text for _, text in itertools.takewhile(lambda line: line[1], following_rows)]
        if not text:
            yield BLANK
        elif not following:
            yield UNUSED
        else:
            chosen = 0 if len(following) == 1 else int(row_generator(seed, number, NEXT).integers(len(following)))
            yield Item([text, following[chosen]])
        ahead.popleft()
        ahead.extend(itertools.islice(lines, 1))


def make_change(augment: Mapping[str, Any], seed: int) -> Augmentation | None:
    """The change that augmentation makes to a sentence: a function of seed, row and column, as in `data.augment`."""
    if not augment:
        return None
    if augment["name"] not in CHANGES:
        raise UserError(f"--augment {augment['name']}: must be one of {', '.join(CHANGES)}")
    change = change_of(augment["name"], augment["percent"], augment["lexicon"])
    return lambda text, row, column: " ".join(change(text.split(), row_generator(seed, row, column)))


def check_used(source: str, positives: str, left_out: Mapping[str, int], used: int, documents: int) -> None:
    """Refuses a source without usable rows, or without blank lines between the documents that `positives` needs."""
    if positives in REACH and documents == 1:
        raise UserError(
            f"{source}: no blank line between sentences, so they may be shuffled; "
            f"--positives {positives} needs documents with a blank line between them"
        )
    if not used and left_out.get("unused"):
        problem = "no document has two sentences" if positives in REACH else f"no pair is labelled {positives}"
        raise UserError(f"{source}: {problem}; choose another --positives")
    if not used:
        raise no_examples_in(source, left_out.get("blank", 0), left_out.get("unlabelled", 0))
