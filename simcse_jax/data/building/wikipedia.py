"""Sentences and documents of Wikipedia.

The paper has "10⁶ randomly sampled sentences from English Wikipedia"; its authors took a dump and "didn't do any
filtering/selection" (princeton-nlp/SimCSE, issue 96). They did not publish which dump, or how they extracted its text
and sentences; our way is in `prose`. But the lines of their file follow one another as in articles, so they must have
drawn whole articles rather than sentences. `articles` is that reading, `sentences` the paper's wording.
"""

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple
from xml.etree import ElementTree

from simcse_jax.data.building.prose import plain_text, require_parser, split_sentences
from simcse_jax.data.building.reading import Tally, checked, columns, draw, open_table
from simcse_jax.errors import UserError, reason

DRAWS = ("sentences", "articles")
DUMPS: dict[str, Callable[..., Any]] = {".xml": open, ".bz2": bz2.open, ".gz": gzip.open}
FILES = ("*pages-articles*.xml", "*pages-articles*.xml-*", "*.xml.bz2", "*.xml.gz", "*.parquet", "*.jsonl")
MEDIA, CATEGORIES = "6", "14"  # the numbers of these namespaces
NO_SENTENCE = "without a sentence"


class Page(NamedTuple):
    """An article, and a function that extracts its prose."""

    text: str
    read: Callable[[str], str]


def sentences(
    files: Sequence[str | Path], tally: Tally, count: int, seed: int, draws: str = DRAWS[0]
) -> Iterator[tuple[str, ...]]:
    """`count` sentences (0: all), a line each.

    Args:
      files: dumps, or tables with a column `text`.
      count, seed: see `draw`.
    """
    if draws == "articles":
        for document in _documents(files, tally, count, seed):
            yield from ((line,) for line in document)
        return
    drawn = Tally("sentences")

    def units() -> Iterator[list[str]]:
        for page in read_pages(files, tally):
            page_sentences = _sentences_of(page, tally)
            drawn.read += len(page_sentences)
            yield from ([sentence] for sentence in page_sentences)

    if count:
        chosen = draw((partial(list, unit) for unit in units()), count, seed, drawn)
        tally.notes += drawn.lines()
        yield from ((unit[0],) for unit in chosen)
    else:
        yield from ((unit[0],) for unit in units())


def documents(files: Sequence[str | Path], tally: Tally, count: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Whole articles, a sentence a line, with a blank line after each.

    The arguments are those of `sentences`.
    """
    for document in _documents(files, tally, count, seed):
        yield from ((line,) for line in document)
        yield ("",)


def _documents(files: Sequence[str | Path], tally: Tally, count: int, seed: int) -> Iterator[list[str]]:
    units = (partial(_sentences_of, page, tally) for page in read_pages(files, tally))
    return iter(draw(units, count, seed, tally)) if count else (text for unit in units if (text := unit()))


def _sentences_of(page: Page, tally: Tally) -> list[str]:
    sentences = split_sentences(page.read(page.text))
    if not sentences:
        tally.drop(NO_SENTENCE)
    return sentences


def read_pages(files: Sequence[str | Path], tally: Tally) -> Iterator[Page]:
    """The articles of dumps (.xml, .bz2, .gz) and of tables with a column `text`, such as hf:wikimedia/wikipedia."""
    dumps: dict[Path, Path] = {}
    for file in files:
        if isinstance(file, Path):
            unpacked = file.with_name(file.name.replace("-multistream", "").removesuffix(".bz2").removesuffix(".gz"))
            if (other := dumps.setdefault(unpacked, file)) != file:
                raise UserError(f"{file}: is the same dump as {other.name}, compressed differently; name one of them")
    for file in files:
        if isinstance(file, Path) and (file.suffix in DUMPS or ".xml-" in file.name):
            require_parser(file)
            yield from _read_dump(file, tally)
            continue
        for row in columns(open_table(file), [("text",)], str(file)):
            tally.see()
            text, where = row.fields[0], f"{row.where}: the field 'text'"
            if not isinstance(text, str):
                raise UserError(f"{where} holds {text!r:.60}, not text")
            yield Page(checked(text, where), _without_headings)


def _without_headings(text: str) -> str:
    """The prose of a dataset's article: its headings and list items are lines without a full stop."""
    return "\n".join(line for line in text.splitlines() if line.rstrip("\"'”’)] ").endswith((".", "!", "?")))


def _read_dump(path: Path, tally: Tally) -> Iterator[Page]:
    """The articles of a dump of dumps.wikimedia.org, one in memory at a time."""
    try:
        with DUMPS.get(path.suffix, open)(path, "rb") as file:
            yield from _pages_of(file, path, tally)
    except (OSError, EOFError, zlib.error, LookupError, ElementTree.ParseError) as error:  # LookupError: its encoding
        raise UserError(f"{path}: not a complete Wikipedia dump: {reason(error)}; download it again") from None


def _pages_of(file: IO[bytes], path: Path, tally: Tally) -> Iterator[Page]:
    hidden: set[str] = set()
    root: ElementTree.Element | None = None
    for event, element in ElementTree.iterparse(file, events=("start", "end")):
        name = element.tag.rpartition("}")[2]
        if root is None:
            root = element
            if name != "mediawiki":
                raise UserError(f"{path}: begins with <{name}>; a Wikipedia dump begins with <mediawiki>")
        if event == "start":
            continue
        if name == "namespace" and element.get("key") in (MEDIA, CATEGORIES):
            hidden.add((element.text or "").strip().lower())
        if name != "page":
            continue
        tally.see()
        parts = {part.tag.rpartition("}")[2]: part for part in element.iter()}
        text = parts["text"].text if "text" in parts else None
        kind = parts["ns"].text if "ns" in parts else "0"
        if "redirect" in parts:
            tally.drop("redirects")
        elif kind != "0":
            tally.drop("no articles (talk, templates, categories)")
        elif not text:
            tally.drop(NO_SENTENCE)
        else:
            yield Page(text, partial(plain_text, hidden=frozenset(hidden)))
        root.clear()  # the pages that were read
