"""The report of a sweep, `report.html` in its folder: its table and picture as one page, with links to its runs'."""

import html
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from pathlib import Path

from simcse_jax.evaluation.analysis import page
from simcse_jax.evaluation.analysis.page import PAGE, PageSection
from simcse_jax.host.storage import write_atomically


def write(folder: Path, name: str, runs: Mapping[str, Path]) -> None:
    """Writes the report, of NAME.md and NAME.svg in the folder.

    Args:
      runs: the folders of the runs, in that folder, by what the page calls them.
    """
    markdown, picture = (folder / f"{name}.md").read_text(encoding="utf-8"), (folder / f"{name}.svg").read_bytes()
    write_atomically(folder / PAGE, make_page(markdown, picture, _links(folder, runs)).encode("utf-8", "replace"))


def make_page(markdown: str, picture: bytes, links: str) -> str:
    """The page: the findings first, then the picture, the tables and the notes of the table's file."""
    title, source, *blocks = markdown.strip().split("\n\n")
    findings = [blocks.pop(0)] if blocks and not blocks[0].startswith(("|", "**")) else []
    about = (
        "Each row's runs, one for each seed (n of them are finished), and the differences from the baseline between "
        "runs of the same seed, with their mean and its 95% interval."
    )
    sections = [
        PageSection("Rows", about, page.figures({title.removeprefix("# "): picture}, wide=True)),
        PageSection("Table", "", "".join(map(_block, blocks))),
        *([PageSection("Runs", "The report of each run.", links)] if links else []),
    ]
    lead = [_plain(text) for text in (*findings, source)]
    return page.page({"sweep": page.part("sweep", title.removeprefix("# "), lead, sections)}, scripted=False)


def _block(text: str) -> str:
    """A paragraph, a list or a table of the markdown as HTML."""
    lines = text.splitlines()
    if text.startswith("|"):
        header, _, *rows = ([_plain(cell.strip()) for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines)
        return page.table("", header, rows)
    if text.startswith("**"):
        return f"<h3>{html.escape(text.strip('*'))}</h3>"
    if text.startswith("`"):
        return f"<pre>{html.escape(text.strip('`'))}</pre>"
    return f"<p>{'<br>'.join(html.escape(_plain(line)) for line in lines)}</p>"


def _plain(text: str) -> str:
    return text.replace("\\|", "|")


def _links(folder: Path, runs: Mapping[str, Path]) -> str:
    """A list of the runs that have a report."""

    def items() -> Iterator[str]:
        for name, run in runs.items():
            if (run / PAGE).is_file():
                place = urllib.parse.quote((run / PAGE).relative_to(folder).as_posix())
                yield f'<li><a href="{html.escape(place)}">{html.escape(name)}</a></li>'

    listed = "".join(items())
    return f"<ul>{listed}</ul>" if listed else ""
