"""The report: one self-contained HTML page, which `analyze` and `geometry` write together, each its own parts of it."""

import base64
import hashlib
import html
import json
import re
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from simcse_jax.evaluation.plotting import Pictures
from simcse_jax.host.storage import write_atomically, writing

PAGE = "report.html"
PARTS = ("sentences", "tokens", "geometry", "runs", "rank")  # in the order of the page
HERE = Path(__file__).parent


class Caption(NamedTuple):
    """The words for a measure, a picture or a section."""

    title: str
    meaning: str  # for a newcomer
    axis: str = ""  # of a measure


TEXTS = {name: Caption(**text) for name, text in json.loads((HERE / "texts.json").read_text(encoding="utf-8")).items()}


class PageSection(NamedTuple):
    """A section of a part."""

    title: str
    meaning: str  # of its numbers, in one sentence
    content: str  # HTML


def write(
    folder: Path, numbers: Mapping[str, Any], drawn: Mapping[str, Pictures], parts: Mapping[str, str]
) -> list[str]:
    """Writes JSON files, pictures and the page, all or none; the names of the files. Other parts of the page stay.

    Args:
      numbers: the contents of the JSON files, by their names; a ValueError if one is not finite.
      drawn: pictures, by their names without an ending.
      parts: of `part`, by their names in `PARTS`; an empty one is taken out.
    """
    files: dict[str, str | bytes] = {}
    for name, value in numbers.items():
        files[name] = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    for name, pictures in drawn.items():
        files |= {f"{name}.{kind}": content for kind, content in pictures.items()}
    with writing(f"--output {folder}: {PAGE}"):
        old = (folder / PAGE).read_text(encoding="utf-8", errors="replace") if (folder / PAGE).is_file() else ""
    kept = {name: re.search(f"<!-- {name} -->(.*?)<!-- end of {name} -->", old, re.S) for name in PARTS}
    texts = {name: match[1] for name, match in kept.items() if match} | dict(parts)
    files[PAGE] = page({name: texts[name] for name in PARTS if texts.get(name)})
    for name, content in files.items():
        write_atomically(folder / name, content)
    return list(files)


def page(parts: Mapping[str, str], scripted: bool = True) -> str:
    """The page, whole. The browser refuses all scripts and pictures but its own; all scripts unless `scripted`."""
    script = (HERE / "page.js").read_text(encoding="utf-8") if scripted else ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"; script-src 'sha256-{digest}'" if scripted else ""
    content = "\n".join(f"<!-- {name} -->{part}<!-- end of {name} -->" for name, part in parts.items())
    title = re.search('<h2 class="title">(.*?)</h2>', content)
    return string.Template((HERE / "page.html").read_text(encoding="utf-8")).substitute(
        title=title[1] if title else "Report",
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'{allowed}",
        content=content,
        script=f"<script>{script}</script>\n" if scripted else "",
    )


def part(name: str, title: str, lead: Sequence[str], sections: Sequence[PageSection], data: Any = None) -> str:
    """A part of the page.

    Args:
      name: of `PARTS`.
      data: what the page's script draws, for JSON; None: nothing.
    """
    lines = [
        f'<h2 class="title">{html.escape(title)}</h2>',
        *(f'<p class="lead">{html.escape(text)}</p>' for text in lead),
    ]
    for number, section in enumerate(sections, 1):
        place = f"{name}-{number}"
        lines.append(f'<section aria-labelledby="{place}">\n<h2 id="{place}">{html.escape(section.title)}</h2>')
        lines += [f'<p class="meaning">{html.escape(section.meaning)}</p>'] if section.meaning else []
        lines.append(f"{section.content}\n</section>")
    if data is not None:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
        lines.append(f'<script type="application/json" id="data-{name}">{text}</script>')
    return "\n".join(lines)


def figures(pictures: Mapping[str, bytes], wide: bool = False) -> str:
    """Pictures (SVG, by what they show in words) next to each other, where there is room, as parts of the page itself.

    Those that are `wide` scroll on a phone instead of shrinking.
    """
    shown = [
        f'<figure><img src="data:image/svg+xml;base64,{base64.b64encode(svg).decode()}" alt="{html.escape(alt)}">'
        "</figure>"
        for alt, svg in pictures.items()
    ]
    return f'<div class="figures{" wide" * wide}">{"".join(shown)}</div>'


def picture_section(
    name: str, drawn: Mapping[str, Pictures], *further: str, more: str = "", wide: bool = False
) -> PageSection:
    """A section of `TEXTS` with those pictures of `name` and `further` that are drawn, and the HTML `more`."""
    present = [picture for picture in (name, *further) if picture in drawn]
    shown = {f"{TEXTS[picture].title}. {TEXTS[picture].meaning}": drawn[picture]["svg"] for picture in present}
    return PageSection(TEXTS[name].title, TEXTS[name].meaning, (figures(shown, wide) if shown else "") + more)


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[Any]], text: bool = False) -> str:
    """A table, the first cell of a row being the row's name; a cell that is None has no value.

    Args:
      header: a name for each column; empty for a table of names and values.
      text: whether its cells are text, not numbers.
    """

    def cell(value: Any, tag: str = "td", scope: str = "") -> str:
        direction = ' dir="auto"' if text else ""
        return f"<{tag}{scope}{direction}>{html.escape('–' if value is None else str(value))}</{tag}>"

    name, kind = html.escape(caption), ' class="text"' if text else ""
    head = "".join(cell(value, "th", ' scope="col"') for value in header)
    head = f"<thead><tr>{head}</tr></thead>\n" if header else ""
    named = ((cell(first, "th", ' scope="row"'), "".join(map(cell, rest))) for first, *rest in rows)
    body = "\n".join(f"<tr>{first}{rest}</tr>" for first, rest in named)
    return (
        f'<div class="scroll" role="region" aria-label="{name}" tabindex="0">\n<table{kind}><caption>{name}</caption>\n'
        f"{head}<tbody>\n{body}\n</tbody></table></div>"
    )


def facts(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """Tables of names and values, by their captions."""
    rows = {caption: [[name.replace("_", " "), value] for name, value in of.items()] for caption, of in parts.items()}
    return "".join(table(caption, [], named, text=True) for caption, named in rows.items())
