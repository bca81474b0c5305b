"""Splits English text into sentences.

How SimCSE's authors split Wikipedia is not published. Ours: a sentence ends at `.`, `!` or `?`, with closing quotes and
brackets, before white space and a capital letter or a digit, which may have opening quotes and brackets; not after an
abbreviation of the list, an initial ("J. Smith") or letters with a point each ("U.S."). A line break always ends one.
"""

import re

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


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without white space around them."""
    return [sentence for line in text.splitlines() for sentence in _split_line(line) if sentence]


def _split_line(line: str) -> list[str]:
    found, start = [], 0
    for match in END.finditer(line):
        following = line[match.end() :].lstrip(OPENING)[:1]
        if following.islower() or _is_abbreviated(line[start : match.start()], match[0]):
            continue
        found.append(line[start : match.end()].strip())
        start = match.end()
    return [*found, line[start:].strip()]


def _is_abbreviated(before: str, end: str) -> bool:
    """Whether the point belongs to the word before it."""
    if end.rstrip() != ".":
        return False
    word = before.rsplit(None, 1)[-1].lstrip(OPENING) if before.strip() else ""
    return word.lower() in ABBREVIATIONS or re.fullmatch(r"(?:[^\W\d_]\.)*[^\W\d_]", word) is not None
