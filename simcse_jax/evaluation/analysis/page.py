"""A self-contained HTML page: it includes its pictures, and may not use any network."""

import base64
import html
from collections.abc import Sequence
from typing import NamedTuple

CSS = """
:root { color-scheme: light dark; --ink: #1a202c; --soft: #4a5568; --paper: #fff; --line: #d8dee6; --band: #f4f6f9;
  --link: #1f5fa8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #a9b3c1; --paper: #14181d; --line: #343c47;
  --band: #1c222a; --link: #8fc1ff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 system-ui, "Segoe UI", "DejaVu Sans",
  sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: .5rem 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.75rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h1, h2, p, li { overflow-wrap: anywhere; }
p { max-width: 46rem; margin: .5rem 0; }
a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; margin: 1rem 0; padding: 0; list-style: none; }
.figures { display: flex; flex-wrap: wrap; gap: 1rem; margin: 1rem 0; }
figure { margin: 0; max-width: 100%; overflow-x: auto; }
figure img { display: block; max-width: 100%; height: auto; background: #fff; border: 1px solid var(--line);
  border-radius: .4rem; padding: .5rem; }
.wide img { min-width: 36rem; }
.note { color: var(--soft); font-size: .9rem; margin-top: .4rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
.scroll:focus-visible { outline: 2px solid var(--link); }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .25rem 0 .5rem; }
th, td { padding: .35rem .8rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; }
thead th { background: var(--band); font-weight: 600; }
th:first-child, td:first-child, .text td, .text th { text-align: left; }
tbody th { font-weight: 400; }
td { white-space: nowrap; }
.text td { white-space: normal; }
@media (max-width: 600px) { main { padding: 1rem .8rem 3rem; } h1 { font-size: 1.4rem; }
  th, td { padding: .3rem .5rem; } }
@media print { :root { --ink: #000; --soft: #333; --paper: #fff; --line: #bbb; --band: #eee; --link: #000; }
  main { max-width: none; padding: 0; } nav { display: none; } .scroll, figure { overflow: visible; }
  .wide img { min-width: 0; } table { font-size: .7rem; } th, td { padding: .2rem .35rem; }
  th, .text td { overflow-wrap: anywhere; }
  figure, table, tr { break-inside: avoid; } h2, caption { break-after: avoid; } }
"""
# Pictures and style are in the page; the browser refuses everything else.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class Section(NamedTuple):
    """A part of a page."""

    title: str
    meaning: str  # of its numbers, in one sentence
    content: str  # HTML


def page(title: str, lead: Sequence[str], sections: Sequence[Section]) -> str:
    """The page, whole."""
    title, parts, links = html.escape(title), [], []
    for number, section in enumerate(sections, 1):
        name = html.escape(section.title)
        links.append(f'<li><a href="#s{number}">{name}</a></li>')
        meaning = f'<p class="meaning">{html.escape(section.meaning)}</p>' if section.meaning else ""
        opening = f'<section aria-labelledby="s{number}">\n<h2 id="s{number}">{name}</h2>\n{meaning}'
        parts.append(f"{opening}\n{section.content}\n</section>")
    head = (
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
        f"<title>{title}</title>",
        f"<style>{CSS}</style>",
    )
    body = (
        f"<h1>{title}</h1>",
        *(f"<p>{html.escape(paragraph)}</p>" for paragraph in lead),
        f'<nav aria-label="Contents"><ul>{"".join(links)}</ul></nav>',
        *parts,
    )
    lines = ["<!doctype html>", '<html lang="en">', "<head>", *head, "</head>", "<body>", "<main>", *body, "</main>"]
    return "\n".join([*lines, "</body>", "</html>"]) + "\n"


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
