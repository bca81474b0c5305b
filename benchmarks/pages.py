"""Writes the pages of a folder of tables again from their CSV files, without the runs.

    python -m benchmarks.pages docs/background/results

For when the code says something else of the same numbers. Each NAME.csv that a sweep wrote, with its NAME.md beside
it, gives both again: means, differences, tests and sentences from the seeds' numbers and the paper's. The title, the
source and all that follows the legend (the command, versions, what people wrote) stay. `--pictures` draws these again,
without the sentence that says in which fields the rows differ, since a CSV has no fields.
"""

import csv
from pathlib import Path
from statistics import fmean

from benchmarks.options import Parser
from simcse_jax.commands.command_line import run_command
from simcse_jax.config.sections import Section
from simcse_jax.host.storage import write_atomically
from simcse_jax.training.sweeps import picture, table
from simcse_jax.training.sweeps.metrics import HEADINGS, METRICS
from simcse_jax.training.sweeps.summary import summarize
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

LEGEND = "Mean ± standard deviation"


def read(file: Path) -> tuple[list[Variant], dict[str, dict[int, dict[str, float]]], dict[str, str], list[int]]:
    """The rows, their results, the headings of the metrics, and the seeds."""
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
    return list(rows.values()), results, headings, seeds


def pages(file: Path, pictures: bool = False) -> dict[str, str | bytes]:
    """The files of a table by their endings, from its CSV and the page beside it."""
    variants, results, headings, seeds = read(file)
    title, source, *parts = file.with_suffix(".md").read_text(encoding="utf-8").strip().split("\n\n")
    notes = parts[next(number for number, part in enumerate(parts) if part.startswith(LEGEND)) + 1 :]
    config = sweep_defaults(title.removeprefix("# "), source.removesuffix("."), tuple(headings), "")
    config.seeds = tuple(map(str, seeds))
    sweep = Section.of(config)
    rows = summarize(sweep, variants, results, HEADINGS | headings)
    written: dict[str, str | bytes] = {"md": table.markdown(rows, sweep, notes), "csv": table.csv(rows, sweep)}
    return written | dict(picture.plot(rows, sweep) if pictures else {})


def main() -> None:
    """Writes them."""
    parser = Parser(prog="benchmarks.pages", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pictures", action="store_true")
    args = parser.parse_args()
    for file in sorted(args.folder.glob("*.csv")):
        if file.read_text(encoding="utf-8").startswith("variant,metric,"):
            files = {f"{file.stem}.{kind}": text for kind, text in pages(file, args.pictures).items()}
            for name, content in files.items():
                write_atomically(args.folder / name, content)
            print(file.stem)


if __name__ == "__main__":
    run_command(main)
