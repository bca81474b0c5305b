"""A source's rows as they go into a corpus: one item per row, so that rows keep their numbers."""

import functools
import itertools
from collections import Counter, deque
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


class Items:
    """The rows of a source, in order, also a block of `shard_rows` at a time."""

    def __init__(self, key: Mapping[str, Any], number: int, change: Augmentation | None):
        """For source `number` of a corpus with this key (`plan.make_plan`); `change` makes changed copies."""
        self._key, self._number, self._change = key, number, change
        self._at = 0  # the number of the next row
        self._next: list[Item] = []  # that row, if it was read ahead

    @functools.cached_property
    def _opened(self) -> tuple[Iterator[object], Iterator[Item]]:
        """The rows as read, which are passed over faster than their items, and the items."""
        key, positives = self._key, self._key["positives"]
        source = open_source(key["sources"][self._number]["name"], key["columns"], positives, key["labels"])
        numbered = enumerate(source.rows, self._number * SOURCE_ROWS)
        if positives in REACH:
            items = _next_sentences(source, numbered, REACH[positives], key["seed"])
            return items, items
        both = bool(self._change and key["augment"]["both"])
        return numbered, _rows(source, numbered, positives, self._change, both)

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        item = self._next.pop() if self._next else next(self._opened[1])
        self._at += 1
        return item

    def pass_to(self, row: int) -> None:
        """Skips the rows before this one."""
        if row > self._at:
            for _ in itertools.islice(self._opened[0], row - self._at - len(self._next)):
                pass
            self._next.clear()
            self._at = row

    def block(self, number: int) -> Iterator[Item]:
        """The rows of a block."""
        self.pass_to(number * self._key["shard_rows"])
        return itertools.islice(self, self._key["shard_rows"])

    def is_last(self, number: int) -> bool:
        """Whether no row follows a block."""
        self.pass_to((number + 1) * self._key["shard_rows"])
        if not self._next:
            self._next = list(itertools.islice(self._opened[1], 1))
        return not self._next


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
        problem = "no document has two sentences" if needed else f"no pair is labelled {positives}"
        raise UserError(f"{source}: {problem}; choose another --positives")
    raise no_examples_in(source, left_out["blank"], left_out["unlabelled"])
