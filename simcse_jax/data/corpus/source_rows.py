"""A source's rows as they go into a corpus: one item per row, so that rows keep their numbers."""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from simcse_jax.data.augment import crop, delete, delete_one
from simcse_jax.data.documents import REACH
from simcse_jax.data.draws import row_generator
from simcse_jax.data.examples import Source, no_examples_in, open_source
from simcse_jax.data.labels import LABELS
from simcse_jax.data.rows import Row
from simcse_jax.errors import UserError

SOURCE_ROWS = 2**40  # for random draws, the rows of source n are counted from n times this
NEXT = 2  # the column of `row_generator` for next sentences; changed copies have 0 and 1
CHANGES = ("crop", "delete", "delete_one", "synonym")


class Item(NamedTuple):
    """A row."""

    texts: list[str]  # one per column
    label: int | None = None
    left_out: str = ""  # the reason, if it is left out: blank, unlabelled or unused


BLANK, UNLABELLED, UNUSED = (Item([], left_out=why) for why in ("blank", "unlabelled", "unused"))
Change = Callable[[str, int, int], str]  # from a sentence, its row and its column to the changed sentence


class Items:
    """The rows of a source, in order."""

    def __init__(self, key: Mapping[str, Any], number: int, change: Change | None):
        """Opens source `number` of a corpus with this key (`plan.make_plan`); `change` makes changed copies."""
        positives = key["positives"]
        source = open_source(key["sources"][number]["name"], key["columns"], positives, key["labels"])
        self._numbered = enumerate(source.rows, number * SOURCE_ROWS)
        self._looks_ahead = positives in REACH
        if self._looks_ahead:
            self._items = _next_sentences(source, self._numbered, REACH[positives], key["seed"])
        else:
            self._items = _rows(source, self._numbered, positives, change, bool(change and key["augment"]["both"]))

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        return next(self._items)

    def pass_over(self, count: int) -> None:
        """Skips the next rows, which is faster than reading them."""
        for _ in itertools.islice(self if self._looks_ahead else self._numbered, count):
            pass


def _rows(
    source: Source, numbered: Iterator[tuple[int, Row]], positives: str, change: Change | None, both: bool
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
        (number, text), *others = ahead
        following = [text for _, text in itertools.takewhile(lambda line: line[1], others)]
        if not text:
            yield BLANK
        elif not following:
            yield UNUSED
        else:
            chosen = 0 if len(following) == 1 else int(row_generator(seed, number, NEXT).integers(len(following)))
            yield Item([text, following[chosen]])
        ahead.popleft()
        ahead.extend(itertools.islice(lines, 1))


def make_change(augment: Mapping[str, Any], seed: int) -> Change | None:
    """The change that augmentation makes to a sentence: a function of seed, row and column, as in `data.augment`."""
    if not augment:
        return None
    name, percent = augment["name"], augment["percent"]
    if name not in CHANGES:
        raise UserError(f"--augment {name}: must be one of {', '.join(CHANGES)}")
    if name == "synonym":
        from simcse_jax.data.synonyms import Synonyms

        synonyms = Synonyms(augment["lexicon"])
        return lambda text, row, column: " ".join(synonyms.replace(text.split(), row_generator(seed, row, column)))
    if name == "delete_one":
        return lambda text, row, column: " ".join(delete_one(text.split(), row_generator(seed, row, column)))
    remove = crop if name == "crop" else delete
    return lambda text, row, column: " ".join(remove(text.split(), percent, row_generator(seed, row, column)))


def check_usable(key: Mapping[str, Any]) -> None:
    """Refuses sources without usable rows, or blank lines between documents, mostly from their first rows."""
    for number, source in enumerate(key["sources"]):
        _check_source(key, number, source["name"])


def _check_source(key: Mapping[str, Any], number: int, source: str) -> None:
    positives = key["positives"]
    needed = 2 if positives in REACH else 0  # documents
    left_out: Counter[str] = Counter()
    used, documents, inside = False, 0, False
    for item in Items(key, number, None):
        blank = item.left_out == "blank"
        documents += not blank and not inside
        inside = not blank
        used = used or not item.left_out
        if used and documents >= needed:
            return
        left_out[item.left_out] += 1
    if needed and documents == 1:
        raise UserError(
            f"{source}: no blank line between sentences, so they may be shuffled; "
            f"--positives {positives} needs documents with a blank line between them"
        )
    if left_out["unused"]:
        what = "no document has two sentences" if needed else f"no pair is labelled {positives}"
        raise UserError(f"{source}: {what}; choose another --positives")
    raise no_examples_in(source, left_out["blank"], left_out["unlabelled"])
