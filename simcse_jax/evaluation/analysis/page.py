"""A self-contained HTML page: it includes its pictures, and may not use any network."""

import base64
import html
import string
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# Pictures and style are in the page; the browser refuses everything else.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Section(NamedTuple):
    """A part of a page."""

    title: str
    meaning: str  # of its numbers, in one sentence
    content: str  # HTML


def page(title: str, lead: Sequence[str], sections: Sequence[Section]) -> str:
    """The page, whole."""
    parts, links = [], []
    for number, section in enumerate(sections, 1):
        name = html.escape(section.title)
        links.append(f'<li><a href="#s{number}">{name}</a></li>')
        meaning = f'<p class="meaning">{html.escape(section.meaning)}</p>' if section.meaning else ""
        opening = f'<section aria-labelledby="s{number}">\n<h2 id="s{number}">{name}</h2>\n{meaning}'
        parts.append(f"{opening}\n{section.content}\n</section>")
    return string.Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(title),
        policy=POLICY,
        lead="\n".join(f"<p>{html.escape(paragraph)}</p>" for paragraph in lead),
        links="".join(links),
        sections="\n".join(parts),
    )


def figures(pictures: Sequence[tuple[bytes, str]], wide: bool = False) -> str:
    """Pictures next to each other, where there is room, as parts of the page itself.

    Args:
      wide: whether they are too wide for a phone, and scroll there instead of shrinking.
    """
    parts = []
    for svg, alt in pictures:
        source = "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
        parts.append(f'<figure><img src="{source}" alt="{html.escape(alt)}"></figure>')
    return f'<div class="figures{" wide" * wide}">{"".join(parts)}</div>'


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], text: bool = False) -> str:
    """A table, the first cell of a row being the row's name.

    Args:
      header: a name for each column; empty for a table of names and values.
      rows: of as many cells, as text.
      text: whether its cells are text, not numbers.
    """
    name, kind = html.escape(caption), ' class="text"' if text else ""
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in header)
    lines = [f'<div class="scroll" role="region" aria-label="{name}" tabindex="0">']
    lines.append(f"<table{kind}><caption>{name}</caption>")
    lines += [f"<thead><tr>{head}</tr></thead>"] if header else []
    lines.append("<tbody>")
    for first, *rest in rows:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in rest)
        lines.append(f'<tr><th scope="row">{html.escape(first)}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody></table></div>"])


def note(text: str) -> str:
    """A remark."""
    return f'<p class="note">{html.escape(text)}</p>'
