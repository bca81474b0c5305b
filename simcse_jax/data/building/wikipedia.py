"""Sentences and documents of Wikipedia.

The paper has "10⁶ randomly sampled sentences from English Wikipedia"; its authors took a dump and "didn't do any
filtering/selection" (princeton-nlp/SimCSE, issue 96). They did not publish which dump, or how they extracted its text
and sentences; our way is in `prose`. But the lines of their file follow one another as in articles, so they must have
drawn whole articles rather than sentences. `articles` is that reading, `sentences` the paper's wording.
"""

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree

from simcse_jax.data.building.prose import plain_text, split_sentences
from simcse_jax.data.building.reading import Tally, draw, read_columns
from simcse_jax.data.rows import as_text
from simcse_jax.errors import UserError, reason, require

DRAWS = ("sentences", "articles")
DUMPS: dict[str, Callable[..., Any]] = {".xml": open, ".bz2": bz2.open, ".gz": gzip.open}
FILES = ("*pages-articles*.xml", "*pages-articles*.xml-*", "*.xml.bz2", "*.xml.gz", "*.parquet", "*.jsonl")
MEDIA, CATEGORIES = "6", "14"  # the numbers of these namespaces
NO_SENTENCE = "without a sentence"


Unit = Callable[[], list[str]]  # the sentences of an article, which it extracts when it is called


def sentences(
    files: Sequence[str | Path], tally: Tally, count: int, seed: int, draws: str = DRAWS[0]
) -> Iterator[tuple[str, ...]]:
    """`count` sentences (0: all), a line each.

    Args:
      files: dumps, or tables with a column `text`.
      count, seed: see `draw`.
    """
    pages = read_pages(files, tally)
    if draws == "articles":
        yield from ((line,) for document in _drawn(pages, count, seed, tally) for line in document)
        return
    drawn = Tally("sentences")

    def units() -> Iterator[Unit]:
        for page in pages:
            page_sentences = page()
            drawn.read += len(page_sentences)
            yield from (partial(list, [sentence]) for sentence in page_sentences)

    for unit in _drawn(units(), count, seed, drawn):
        yield (unit[0],)
    tally.notes += drawn.lines() if count else []


def documents(files: Sequence[str | Path], tally: Tally, count: int, seed: int) -> Iterator[tuple[str, ...]]:
    """Whole articles, a sentence a line, with a blank line after each; the arguments are those of `sentences`."""
    for document in _drawn(read_pages(files, tally), count, seed, tally):
        yield from ((line,) for line in (*document, ""))


def _drawn(units: Iterable[Unit], count: int, seed: int, tally: Tally) -> Iterable[list[str]]:
    return draw(units, count, seed, tally) if count else (text for unit in units if (text := unit()))


def _sentences_of(text: str, prose: Callable[[str], str], tally: Tally) -> list[str]:
    sentences = split_sentences(prose(text))
    tally.dropped[NO_SENTENCE] += not sentences
    return sentences


def read_pages(files: Sequence[str | Path], tally: Tally) -> Iterator[Unit]:
    """The articles of dumps (.xml, .bz2, .gz) and of tables with a column `text`, such as hf:wikimedia/wikipedia."""
    names = [str(file).replace("-multistream", "").removesuffix(".bz2").removesuffix(".gz") for file in files]
    for place, file in enumerate(files):
        if names.index(names[place]) < place:  # the same dump, compressed differently
            continue
        if isinstance(file, Path) and (file.suffix in DUMPS or ".xml-" in file.name):
            require("wikipedia", "mwparserfromhell", where=str(file))
            yield from _read_dump(file, tally)
            continue
        for row in read_columns(file, [("text",)]):
            tally.see()
            text = as_text(row.fields[0], f"{row.where}: the field 'text'")
            yield partial(_sentences_of, text, _without_headings, tally)


def _without_headings(text: str) -> str:
    """The prose of a dataset's article: its headings and list items are lines without a full stop."""
    return "\n".join(line for line in text.splitlines() if line.rstrip("\"'”’)] ").endswith((".", "!", "?")))


def _read_dump(path: Path, tally: Tally) -> Iterator[Unit]:
    """The articles of a dump of dumps.wikimedia.org, one in memory at a time."""
    try:
        with DUMPS.get(path.suffix, open)(path, "rb") as file:
            yield from _pages_of(file, path, tally)
    except (OSError, EOFError, zlib.error, LookupError, ElementTree.ParseError) as error:  # LookupError: its encoding
        raise UserError(f"{path}: not a complete Wikipedia dump: {reason(error)}; download it again") from None


def _pages_of(file: IO[bytes], path: Path, tally: Tally) -> Iterator[Unit]:
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
        parts = {part.tag.rpartition("}")[2]: part.text for part in element.iter()}
        if "redirect" in parts:
            tally.dropped["redirects"] += 1
        elif parts.get("ns", "0") != "0":
            tally.dropped["no articles (talk, templates, categories)"] += 1
        elif text := parts.get("text"):
            yield partial(_sentences_of, text, partial(plain_text, hidden=frozenset(hidden)), tally)
        else:
            tally.dropped[NO_SENTENCE] += 1
        root.clear()  # the pages that were read
