"""The prose of an article in MediaWiki's markup, by the package mwparserfromhell.

Kept: paragraphs, with the texts of links and of visible tags. Left out: templates, tables, references, formulas,
headings, list items, files, categories and links to other languages, and lines that still have markup. What SimCSE's
authors kept of an article is not published; their file has titles of articles as lines, ours has not.
"""

import re
from collections.abc import Iterable
from functools import partial

from simcse_jax.errors import UserError

ITEM = "\x02"  # in place of the mark of a list item
UNSEEN = {
    "table",
    "ref",
    "references",
    "gallery",
    "imagemap",
    "math",
    "chem",
    "ce",
    "score",
    "timeline",
    "hiero",
    "pre",
}
UNSEEN |= {"syntaxhighlight", "source", "graph", "mapframe", "style"}
MARKS = ("*", "#", ":", ";")
SWITCH = re.compile(r"__[A-Z]+__")  # __NOTOC__
MARKUP = re.compile(r"''|\{\{|\}\}|\[\[|\]\]|\{\||\|\}|<[a-z/!]|^[!|]")
EMPTY = re.compile(r"\s*\((?:[\s,;:–-]|\b(?:or|and)\b)*\)")  # what is left of brackets around a template
BEGINNING = re.compile(r"\(\s*[,;:]\s*")
SPACES = re.compile(r"[^\S\n]+")
LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z-]+)?|simple")


def require_parser(file: object) -> None:
    """Checks that the parser is installed.

    Args:
      file: what it is needed for.
    """
    try:
        import mwparserfromhell  # noqa: F401
    except ImportError:
        raise UserError(
            f"{file}: a Wikipedia dump needs the package mwparserfromhell: pip install 'simcse_jax[wikipedia]'"
        ) from None


def plain_text(markup: str, hidden: Iterable[str] = ()) -> str:
    """The prose of an article, a paragraph a line.

    Args:
      markup: the article's source.
      hidden: the names, in lower case, of namespaces whose links do not show: files, categories.
    """
    import mwparserfromhell
    from mwparserfromhell import nodes

    code = mwparserfromhell.parse(markup)
    namespaces = {"file", "image", "category", *hidden}
    for node in code.ifilter():
        if isinstance(node, nodes.Wikilink):
            prefix, colon, _ = str(node.title).partition(":")
            name = prefix.strip().lower()
            if colon and (name in namespaces or (LANGUAGE.fullmatch(prefix) and node.text is None)):
                node.text = ""
        elif isinstance(node, nodes.Heading):
            node.title = ""
        elif isinstance(node, nodes.Tag):
            if node.wiki_markup in MARKS:
                node.contents = ITEM
            elif node.tag.strip().lower() in UNSEEN:
                node.contents = ""
    text = SWITCH.sub("", code.strip_code(normalize=True, collapse=False))
    lines = map(partial(_tidy), text.split("\n"))
    return "\n".join(line for line in lines if line)


def _tidy(line: str) -> str:
    """A line of prose; empty for other lines."""
    if ITEM in line or MARKUP.search(line):
        return ""
    line = BEGINNING.sub("(", EMPTY.sub("", SPACES.sub(" ", line))).strip()
    return line if any(map(str.isalpha, line)) else ""
