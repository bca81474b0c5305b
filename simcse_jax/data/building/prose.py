"""From MediaWiki's markup to prose, by the package mwparserfromhell, and from English prose to sentences.

Kept of an article: paragraphs, with the texts of links and of visible tags. Left out: templates, tables, references,
formulas, headings, list items, files, categories and links to other languages, and lines that still have markup. What
SimCSE's authors kept is not published; their file has titles of articles as lines, ours does not.

Nor is how they split Wikipedia into sentences. Ours ends a sentence at `.`, `!` or `?`, with closing quotes and
brackets, before white space and a capital letter or a digit, which may have opening quotes and brackets; but not after
a listed abbreviation, an initial ("J. Smith") or letters with a point each ("U.S."). A line break always ends one.
"""

import re
from collections.abc import Iterable

ITEM = "\x02"  # in place of the mark of a list item
UNSEEN = {"table", "ref", "references", "gallery", "imagemap", "math", "chem", "ce", "score", "timeline", "hiero"}
UNSEEN |= {"pre", "syntaxhighlight", "source", "graph", "mapframe", "style"}
MARKS = ("*", "#", ":", ";")
SWITCH = re.compile(r"__[A-Z]+__")  # __NOTOC__
MARKUP = re.compile(r"''|\{\{|\}\}|\[\[|\]\]|\{\||\|\}|<[a-z/!]|^[!|]")
EMPTY = re.compile(r"\s*\((?:[\s,;:–-]|\b(?:or|and)\b)*\)")  # what is left of brackets around a template
BEGINNING = re.compile(r"\(\s*[,;:]\s*")
SPACES = re.compile(r"[^\S\n]+")
LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z-]+)?|simple")
END = re.compile(r"""(?<![.!?])[.!?]+["'”’)\]]*\s+(?=["'“‘(\[]*[^\W_])""")
OPENING = "\"'“‘(["
# fmt: off
ABBREVIATIONS = {
    "adm", "al", "approx", "apr", "aug", "ave", "brig", "bros", "capt", "cf", "ch", "co", "col", "corp", "cpl", "dec",
    "dept", "dr", "ed", "eds", "esp", "est", "feb", "fig", "figs", "fl", "ft", "gen", "gov", "hon", "inc", "jan",
    "jr", "lt", "ltd", "maj", "mar", "messrs", "mr", "mrs", "ms", "mt", "mts", "no", "nos", "nov", "oct", "op", "pp",
    "pl", "pres", "prof", "pt", "pvt", "rep", "rev", "sen", "sep", "sept", "sgt", "sr", "st", "ste", "trans", "univ",
    "viz", "vol", "vols", "vs",
}
# fmt: on


def plain_text(markup: str, hidden: Iterable[str] = ()) -> str:
    """The prose of an article, a paragraph a line.

    Args:
      hidden: lower-case names of namespaces whose links are invisible: files, categories.
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
    lines = map(_tidy, text.split("\n"))
    return "\n".join(line for line in lines if line)


def _tidy(line: str) -> str:
    """A line of prose; empty for other lines."""
    if ITEM in line or MARKUP.search(line):
        return ""
    line = BEGINNING.sub("(", EMPTY.sub("", SPACES.sub(" ", line))).strip()
    return line if any(map(str.isalpha, line)) else ""


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without white space around them."""
    return [sentence for line in text.splitlines() for sentence in _split_line(line) if sentence]


def _split_line(line: str) -> list[str]:
    sentences, start = [], 0
    for match in END.finditer(line):
        following = line[match.end() :].lstrip(OPENING)[:1]
        if following.islower() or _is_abbreviated(line[start : match.start()], match[0]):
            continue
        sentences.append(line[start : match.end()].strip())
        start = match.end()
    return [*sentences, line[start:].strip()]


def _is_abbreviated(before: str, end: str) -> bool:
    """Whether the point belongs to the word before it."""
    if end.rstrip() != ".":
        return False
    word = before.rsplit(None, 1)[-1].lstrip(OPENING) if before.strip() else ""
    return word.lower() in ABBREVIATIONS or re.fullmatch(r"(?:[^\W\d_]\.)*[^\W\d_]", word) is not None
