"""The table of a sweep: from the runs' numbers to markdown, csv and a picture."""

import csv as csv_lib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from simcse_jax.config.sections import Section
from simcse_jax.evaluation.sts import spearman
from simcse_jax.host.storage import write_atomically
from simcse_jax.training.sweeps.metrics import HEADINGS, METRICS
from simcse_jax.training.sweeps.picture import plot
from simcse_jax.training.sweeps.summary import MOST_TOGETHER, Cell, Results, TableRow, summarize
from simcse_jax.training.sweeps.variants import Variant, read_seeds

EMPTY = "–"  # a cell without a value
LEVEL = 0.05  # differences with a smaller p, corrected, are stated at the top
CHOSEN = "†"
FEWEST = 3  # rows that have an order


def markdown(rows: Sequence[TableRow], sweep: Section, notes: Sequence[str] = ()) -> str:
    """The table for people, with the meaning of its columns and the notes below it.

    Up to three metrics stand in one table. More of them stand in three: the scores, the paper's and the differences.
    """
    if len(sweep.metrics) <= MOST_TOGETHER:
        tables = [_joint_table(rows, sweep)]
    else:
        tables = [_our_table(rows, sweep), _paper_table(rows, sweep), _differences(rows, sweep)]
    parts = [f"# {sweep.title}", f"{sweep.source}.", findings(rows, sweep), *tables, _legend(rows, sweep), *notes]
    return "\n\n".join(filter(None, parts)) + "\n"


def _joint_table(rows: Sequence[TableRow], sweep: Section) -> str:
    """Each metric's mean, the paper's value, the difference and its p, next to each other."""
    several = len({row.baseline for row in rows if not row.quoted}) > 1
    header, lines = ["variant", *(["baseline"] if several else [])], []
    with_paper = {metric: any(row.cells[metric].paper is not None for row in rows) for metric in sweep.metrics}
    for metric in sweep.metrics:
        header += [_heading(rows, metric), *(["paper"] if with_paper[metric] else []), "Δ", "p"]
    for row in rows:
        line = [_escape(row.variant)]
        if several:
            line.append("" if row.baseline == row.variant or row.quoted else _escape(row.baseline))
        for metric, cell in row.cells.items():
            line.append("quoted" if row.quoted else f"{_mean(cell, metric)}{_count(cell)}")
            if with_paper[metric]:
                line.append(_paper(rows, metric, cell.paper))
            if row.quoted:
                line += ["", ""]
            elif row.baseline == row.variant:
                line += ["baseline", ""]
            else:
                line += [_difference(cell, metric), _p(cell.p)]
        lines.append(line)
    return _table(header, lines, 2 if several else 1)


def _our_table(rows: Sequence[TableRow], sweep: Section) -> str:
    """The means of all metrics; `n` is the number of seeds, and stands in a cell again if it has fewer."""
    lines = []
    for row in rows:
        if not row.quoted:
            most = max(len(cell.values) for cell in row.cells.values())
            cells = [
                _mean(cell, metric) + (_count(cell) if 0 < len(cell.values) < most else "")
                for metric, cell in row.cells.items()
            ]
            lines.append([_escape(row.variant), str(most), *cells])
    header = ["variant", "n", *(_heading(rows, metric) for metric in sweep.metrics)]
    return _add_title("Ours" if _has_paper(rows) else "Scores", header, lines)


def _paper_table(rows: Sequence[TableRow], sweep: Section) -> str:
    """The paper's values of the rows that have some."""
    lines = [
        [
            _escape(row.variant) + " (quoted)" * row.quoted,
            *(_paper(rows, metric, cell.paper) for metric, cell in row.cells.items()),
        ]
        for row in rows
        if any(cell.paper is not None for cell in row.cells.values())
    ]
    return _add_title("The paper's", ["variant", *(_heading(rows, metric) for metric in sweep.metrics)], lines)


def _has_paper(rows: Sequence[TableRow]) -> bool:
    return any(cell.paper is not None for row in rows for cell in row.cells.values())


def _differences(rows: Sequence[TableRow], sweep: Section) -> str:
    """Δ and, in brackets, p, of the rows that are compared with another."""
    lines = []
    for row in rows:
        if not row.quoted and row.baseline != row.variant:
            cells = [
                _difference(cell, metric) + ("" if cell.p is None else f" ({_p(cell.p)})")
                for metric, cell in row.cells.items()
            ]
            lines.append([_escape(row.variant), _escape(row.baseline), *cells])
    header = ["variant", "baseline", *(_heading(rows, metric) for metric in sweep.metrics)]
    return _add_title("Δ (p)", header, lines, 2)


def findings(rows: Sequence[TableRow], sweep: Section) -> str:
    """A sentence for each metric: the best row, and the rows that differ from their baseline; empty without numbers.

    A task has none where the average that it is a part of has one.
    """
    parts = {part for metric in sweep.metrics for part in METRICS[metric].parts}
    return " ".join(filter(None, (_finding(rows, metric) for metric in sweep.metrics if metric not in parts)))


def csv(rows: Sequence[TableRow], sweep: Section) -> str:
    """The table for programs: a line for each variant and metric, with the value of every seed."""
    seeds = read_seeds(sweep)
    out = io.StringIO()
    writer = csv_lib.writer(out, lineterminator="\n")
    header = ["variant", "metric", "n", "mean", "std", "paper", "baseline", "difference", "p", "p_holm", "chosen"]
    writer.writerow(header + [f"seed_{seed}" for seed in seeds])
    for row in rows:
        for metric, cell in row.cells.items():
            numbers = [cell.mean, cell.std, cell.paper]
            values = [cell.values.get(seed) for seed in seeds]
            name = metric if cell.heading == HEADINGS[metric] else cell.heading
            line = [row.variant, name, len(cell.values), *map(_number, numbers), row.baseline]
            writer.writerow(
                line
                + [_number(value) for value in (cell.difference, cell.p, cell.holm)]
                + ["yes" * cell.chosen, *map(_number, values)]
            )
    return out.getvalue()


def write(
    folder: Path,
    name: str,
    sweep: Section,
    variants: Sequence[Variant],
    results: Results,
    notes: Sequence[str] = (),
    headings: Mapping[str, str] = HEADINGS,
) -> list[TableRow]:
    """Writes NAME.md, NAME.csv, NAME.png and NAME.svg into the folder."""
    rows = summarize(sweep, variants, results, headings)
    files: dict[str, str | bytes] = {"md": markdown(rows, sweep, notes), "csv": csv(rows, sweep), **plot(rows, sweep)}
    for kind, content in files.items():
        write_atomically(folder / f"{name}.{kind}", content)
    return rows


def _finding(rows: Sequence[TableRow], metric: str) -> str:
    """A sentence: the best row, of those with the most seeds, and the rows that differ from their baseline.

    Another says how far their order is the paper's.
    """
    cells = {row.variant: row.cells[metric] for row in rows if row.cells[metric].values}
    seeds = max(([*cell.values] for cell in cells.values()), key=len, default=[])
    means = {name: cell.mean for name, cell in cells.items() if [*cell.values] == seeds and cell.mean is not None}
    if len(means) < 2:
        return ""
    among = f", of the {len(means)} rows with {len(seeds)} seeds" if len(means) < len(cells) else ""
    lower = METRICS[metric].lower
    best = (min if lower else max)(means, key=lambda name: means[name])
    extreme = f"the {'lowest' if lower else 'highest'} mean, {_decimals(means[best], metric)}"
    if len({*means.values()}) == 1:
        return f"{_heading(rows, metric)}: all rows have the same mean{among}."
    text = f"{_heading(rows, metric)}: {_escape(best)} has {extreme}{_mark(cells[best])}{among}"
    tests = {name: cell.holm for name, cell in cells.items() if cell.holm is not None}
    if tests:
        clear = [name for name, p in tests.items() if p < LEVEL]
        differ = "differs from its baseline" if len(clear) == 1 else "differ from their baseline"
        differences = {name: cell.difference for name, cell in cells.items() if cell.difference is not None}
        most = max(clear, key=lambda name: abs(differences[name]), default="")
        shown = f", {_escape(most)} most ({_decimals(differences[most], metric, '+')})" if most else ""
        corrected = " after Holm's correction" * (len(tests) > 1)
        text += f"; {len(clear) or 'none'} of {len(tests)} rows {differ} with p < {LEVEL}{corrected}{shown}"
    return f"{text}.{_agreement(list(cells.values()))}"


def _agreement(cells: Sequence[Cell]) -> str:
    """A sentence on the order of the rows that the paper has too; empty where there is none."""
    pairs = [(cell.mean, cell.paper) for cell in cells if cell.paper is not None]
    if len({paper for _, paper in pairs}) < FEWEST:
        return ""
    rho = spearman(*(np.array(values) for values in zip(*pairs, strict=True))) / 100
    return f" Spearman's ρ with the paper's values is {rho:.2f}, over {len(pairs)} rows."


def _table(header: list[str], lines: list[list[str]], texts: int = 1) -> str:
    """Markdown; the first `texts` columns are texts, the others numbers."""
    rule = ["---"] * texts + ["---:"] * (len(header) - texts)
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *lines))


def _add_title(title: str, header: list[str], lines: list[list[str]], texts: int = 1) -> str:
    """A table with its title; nothing if it has no lines."""
    return f"**{title}**\n\n{_table(header, lines, texts)}" if lines else ""


def _heading(rows: Sequence[TableRow], metric: str) -> str:
    return _escape(rows[0].cells[metric].heading)


def _decimals(value: float, metric: str, sign: str = "") -> str:
    return f"{value:{sign}.{METRICS[metric].decimals}f}"


def _mean(cell: Cell, metric: str) -> str:
    if cell.mean is None:
        return EMPTY
    spread = "" if cell.std is None else f" ± {_decimals(cell.std, metric)}"
    return _decimals(cell.mean, metric) + spread + _mark(cell)


def _mark(cell: Cell) -> str:
    return f" {CHOSEN}" if cell.chosen else ""


def _count(cell: Cell) -> str:
    return "" if cell.mean is None else f" ({len(cell.values)})"


def _difference(cell: Cell, metric: str) -> str:
    return EMPTY if cell.difference is None else _decimals(cell.difference, metric, "+")


def _paper(rows: Sequence[TableRow], metric: str, value: float | None) -> str:
    """A value of the paper, with as many decimals as those of its column have, one or two."""
    if value is None:
        return EMPTY
    column = [cell.paper for cell in (row.cells[metric] for row in rows) if cell.paper is not None]
    two = any(round(other, 1) != round(other, 2) for other in column)
    return f"{value:.2f}" if two else f"{value:.1f}"


def _escape(name: str) -> str:
    return name.replace("|", "\\|")


def _p(p: float | None) -> str:
    if p is None:
        return EMPTY
    return "<0.0001" if p < 1e-4 else f"{p:.2g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def _legend(rows: Sequence[TableRow], sweep: Section) -> str:
    seeds = read_seeds(sweep)
    measured_rows = [row for row in rows if not row.quoted]
    missing = [seed not in cell.values for row in measured_rows for cell in row.cells.values() for seed in seeds]
    if not measured_rows:
        return "All rows are quoted from the paper; nothing is run."
    brackets = "in brackets, how many of them are finished"
    text = (
        f"Mean ± standard deviation (n - 1) over the seeds ({', '.join(map(str, seeds))}); "
        f"{brackets if len(sweep.metrics) <= MOST_TOGETHER else 'n: how many of them are finished'}. "
        "Δ: the mean difference from the baseline over the seeds that both have; "
        "p: that of a paired two-sided t-test over those seeds; "
        "the text above corrects it for the number of rows, the table does not."
    )
    if any(missing):
        text += f" {EMPTY}: no value; {sum(missing)} of {len(missing)} are missing."
    if any(cell.chosen for row in measured_rows for cell in row.cells.values()):
        text += f" {CHOSEN}: what a row is, its reading or its rate, was chosen on this column, which flatters it."
    if sweep.report_once:
        once = ", ".join(_heading(rows, metric) for metric in sweep.report_once)
        text += f" Held out, seen by no choice: {once}."
    if any(row.quoted for row in rows):
        text += " Quoted: another system, whose numbers are the paper's; nothing is run."
    return text
