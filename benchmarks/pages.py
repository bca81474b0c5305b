"""Writes the tables of the pages of results again from the CSV files in their folder, without the runs.

    python -m benchmarks.pages docs/background/results

NAME.csv is what a sweep wrote; its means, differences and tests are computed again from the seeds' numbers. A page
shows some of its metrics:

    <!-- NAME: stsb_dev, sts_avg -->

    (the table)

    <!-- end -->

`--pictures` also draws again what a page shows as ![TITLE: what it shows](NAME.png)<!-- stsb_dev, sts_avg -->.
"""

import csv
import re
from pathlib import Path
from statistics import fmean

from benchmarks.options import Parser
from simcse_jax.commands.command_line import run_command
from simcse_jax.config.sections import Section
from simcse_jax.host.storage import write_atomically
from simcse_jax.training.sweeps import picture, table
from simcse_jax.training.sweeps.metrics import HEADINGS, METRICS
from simcse_jax.training.sweeps.summary import Cell, TableRow, summarize
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

PICTURE = re.compile(r"!\[([^:\]]+)[^\]]*\]\((\w+)\.png\)<!-- ([\w, ]+) -->")
BLOCK = re.compile(r"(<!-- (\w+): ([\w, ]+) -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)


def read(file: Path) -> tuple[list[TableRow], Section]:
    """The rows of a table and its sweep, from the seeds' numbers and the paper's in its CSV."""
    with open(file, newline="", encoding="utf-8") as text:
        lines = list(csv.DictReader(text))
    seeds = [int(name.removeprefix("seed_")) for name in lines[0] if name.startswith("seed_")]
    headings, rows, results = {}, {}, {}
    for line in lines:
        metric = next(
            name for name in METRICS if line["metric"] == name or line["metric"].startswith(HEADINGS[name] + ", ")
        )
        headings[metric] = HEADINGS[metric] if line["metric"] == metric else line["metric"]
        row = rows.setdefault(line["variant"], Variant(line["variant"], {}, {}, line["baseline"]))
        paper = {metric: float(line["paper"])} if line["paper"] else {}
        chosen = (metric,) * bool(line.get("chosen"))
        rows[row.name] = row._replace(paper=row.paper | paper, chosen_on=row.chosen_on + chosen)
        for seed in seeds:
            if line[f"seed_{seed}"]:
                results.setdefault(row.name, {}).setdefault(seed, {})[metric] = float(line[f"seed_{seed}"])
    for metric in (name for name in headings if headings[name] != HEADINGS[name] and METRICS[name].parts):
        parts = [
            part
            for part in METRICS[metric].parts
            if any(part in each for row in results.values() for each in row.values())
        ]
        for name, row in rows.items():
            if parts and all(part in row.paper for part in parts):
                rows[name] = row._replace(paper={**row.paper, metric: fmean(row.paper[part] for part in parts)})
    sweep = section("", "", [*headings], seeds)
    return summarize(sweep, list(rows.values()), results, HEADINGS | headings), sweep


def section(title: str, source: str, metrics: list[str], seeds: list[int]) -> Section:
    """A sweep's section of a config."""
    config = sweep_defaults(title, source, tuple(metrics), "")
    config.seeds = tuple(map(str, seeds))
    return Section.of(config)


def tables(page: str, folder: Path) -> str:
    """The page with its tables as their CSV files have them."""

    def written(block: re.Match) -> str:
        return block[1] + short_table(folder / f"{block[2]}.csv", block[3].split(", ")) + block[4]

    return BLOCK.sub(written, page)


def short_table(file: Path, metrics: list[str]) -> str:
    """Some metrics of a table in Markdown: each mean, the paper's value; of scores the difference, its corrected p."""
    rows, sweep = read(file)
    header, columns = [""], [[row.variant for row in rows]]
    for metric in metrics:
        cells, places = [row.cells[metric] for row in rows], METRICS[metric].decimals
        papers = [cell.paper for cell in cells]
        header.append(cells[0].heading)
        columns.append([mean(cell, places, len(sweep.seeds)) for cell in cells])
        if any(value is not None for value in papers):
            two = any(round(value, 1) != round(value, 2) for value in papers if value is not None)
            header.append("paper")
            columns.append(["" if value is None else f"{value:.{1 + two}f}" for value in papers])
        if METRICS[metric].decimals == 2:  # a score, no measure of the space
            header.append("Δ (p)")
            columns.append([difference(row, metric, rows[0].baseline) for row in rows])
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *zip(*columns, strict=True)))


def mean(cell: Cell, places: int, seeds: int) -> str:
    """A mean and its deviation, a mark if the column chose the row, the number of seeds if some are missing."""
    spread = "" if cell.std is None else f" ± {cell.std:.{places}f}"
    return f"{cell.mean:.{places}f}{spread}{' †' * cell.chosen}" + f" ({len(cell.values)})" * (len(cell.values) < seeds)


def difference(row: TableRow, metric: str, usual: str) -> str:
    """The difference from the baseline, which is named if it is not the usual one, and p after Holm's correction."""
    cell = row.cells[metric]
    if row.baseline == row.variant or cell.difference is None:
        return ""
    text = f"{cell.difference:+.{METRICS[metric].decimals}f}" + f" to {row.baseline}" * (row.baseline != usual)
    return text if cell.holm is None else f"{text} ({'<0.0001' if cell.holm < 1e-4 else f'{cell.holm:.2g}'})"


def pictures(page: str, folder: Path) -> dict[str, bytes]:
    """The pictures of tables that a page shows, by the name of the file."""
    drawn = {}
    for title, name, metrics in PICTURE.findall(page):
        rows, sweep = read(folder / f"{name}.csv")
        about = re.match(r"# ([^:\n]+)", page)[1]
        part = section(title, about, metrics.split(", "), sweep.seeds)
        rows = [row._replace(cells={metric: row.cells[metric] for metric in part.metrics}) for row in rows]
        drawn[f"{name}.png"] = picture.plot(rows, part)["png"]
    return drawn


def main() -> None:
    """Writes them."""
    parser = Parser(prog="benchmarks.pages", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", action="store_true")
    args = parser.parse_args()
    for file in sorted(args.folder.glob("*.csv")):
        if file.read_text(encoding="utf-8").startswith("variant,metric,"):
            write_atomically(file, table.csv(*read(file)))
    for file in sorted(args.folder.glob("*.md")):
        page = file.read_text(encoding="utf-8")
        write_atomically(file, tables(page, args.folder))
        for name, content in pictures(page, args.folder).items() if args.pictures else ():
            write_atomically(args.folder / name, content)
        print(file.stem)


if __name__ == "__main__":
    run_command(main)
