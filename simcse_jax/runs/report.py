"""The report of a run: `report.html` in its folder, one page without scripts that opens from the disk.

It is made of what the folder holds (`run.json`, `metrics.jsonl`, `result.json`, `examples.json`): while the run trains,
so that one that is killed has a report too, and when it ends, however it does.
"""

import contextlib
import html
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tqdm import tqdm

from simcse_jax.config.fields import default_config, flatten
from simcse_jax.errors import Preempted, UserError, reason
from simcse_jax.evaluation.analysis import page
from simcse_jax.evaluation.analysis.page import PageSection
from simcse_jax.host.storage import Folder, is_remote, read_json, write_atomically
from simcse_jax.runs import charts
from simcse_jax.runs.metrics_file import read_metrics
from simcse_jax.runs.model_card import retrieval_rows, similarity_rows, task_scores
from simcse_jax.runs.run_files import AGAINST_START, BEST_STEP, EXAMPLES_FILE, FOLDS_FILE, FREE, RECIPE, plain, read_run

SCORE = "eval/"  # of a line of metrics
MOST_CURVES = 4
SECONDS = 60  # between two reports of a run that trains: all of its metrics are read, maybe from a store
LONGEST = 200  # characters of a value


class Facts(NamedTuple):
    """What a run's folder holds."""

    folder: Folder
    run: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]  # of metrics
    folds: int  # that are finished
    result: Mapping[str, Any]
    examples: Mapping[str, Any]
    ended: str | None  # why it stopped; "": it is finished; None: it has not ended

    @property
    def steps(self) -> int:
        """The steps that the metrics reach."""
        return max((line["step"] for line in self.lines), default=0)

    @property
    def against(self) -> Mapping[str, Any]:
        """The comparison with the base model; {} where there is none."""
        return self.result.get(AGAINST_START, {})

    def curve(self, name: str) -> list[tuple[float, float]]:
        """The values of a metric by their steps."""
        return [(line["step"], float(line[name])) for line in self.lines if isinstance(line.get(name), int | float)]


class Report:
    """Writes the report of a run that trains, at most every `SECONDS`; a `metrics_file.Reporter`."""

    def __init__(self, folder: Folder):
        self._folder = folder
        self._written = -math.inf

    def flush(self) -> None:
        """Writes the report, if it is old."""
        if time.monotonic() > self._written + SECONDS:
            self._written = time.monotonic()
            write(self._folder)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Nothing: the page is made of the file."""

    def finish(self, step: int, result: Mapping[str, float]) -> None:
        """Nothing: `reported` writes the last one."""

    def close(self) -> None:
        """Nothing."""


@contextlib.contextmanager
def reported(folder: Folder, wanted: bool) -> Iterator[None]:
    """Writes the report when a run begins and when it ends, with the error that ended it, if one did."""
    if wanted:
        write(folder)
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(UserError):  # of a full disk, which may be why the run has ended
            if wanted:
                write(folder, _why(error))
        raise
    if wanted:
        write(folder, "")


def _why(error: BaseException) -> str:
    if isinstance(error, UserError | Preempted):
        return str(error)
    if isinstance(error, Exception):
        return f"{type(error).__name__}: {reason(error)}"
    return "interrupted; the same command resumes it"


def write(folder: Folder, ended: str | None = None) -> None:
    """Writes the report; `ended` as in `Facts`."""

    def read(name: str) -> dict[str, Any]:
        return read_json(folder / name) if (folder / name).is_file() else {}

    facts = Facts(
        folder,
        read_run(folder / "run.json"),
        read_metrics(folder),
        len(read(FOLDS_FILE).get("folds", ())),
        read("result.json"),
        read(EXAMPLES_FILE),
        ended,
    )
    write_atomically(folder / page.PAGE, make_page(facts).encode("utf-8", "replace"))


def make_page(facts: Facts) -> str:
    """The whole page."""
    sections = [_comparison(facts), _curves(facts), _heat_maps(facts), _moved(facts), _scores(facts)]
    sections += [_settings(facts), _machine(facts), _next(facts) if facts.ended == "" else None]
    part = page.part("run", headline(facts), _lead(facts), [section for section in sections if section])
    return page.page({"run": part}, scripted=False)


def headline(facts: Facts) -> str:
    """What came out, in a few words."""
    if facts.ended:
        return "Stopped before its end"
    if facts.ended is None:
        folds = f"{facts.folds} folds and " * bool(facts.folds)
        return f"Not finished: {folds}{facts.steps:,} steps so far"
    if against := facts.against:
        verdict = "Training helped" if against["low"] > 0 else "No gain beyond chance, so the base model is kept"
        return f"{verdict}: {against['before']:.2f} → {against['after']:.2f}"
    scores = _scored(facts)
    if not scores:
        return f"Trained for {facts.steps:,} steps; nothing was scored"
    first = facts.curve(scores[0])
    best = dict(first).get(facts.result.get(BEST_STEP, -1), first[-1][1])
    if not facts.steps:
        return f"Scored without training: {_title(scores[0])} {best:.2f}"
    return f"{_title(scores[0])}: {first[0][1]:.2f} before training, {best:.2f} at the kept checkpoint"


def _lead(facts: Facts) -> list[str]:
    lines = []
    if facts.ended:
        lines.append(facts.ended)
    if facts.ended is None:
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        lines.append(f"Written at {when}. If the run is not at work it was killed: the same command resumes it.")
    if against := facts.against:
        kept, low, high = against["low"] > 0, f"{against['low']:+.2f}", f"{against['high']:+.2f}"
        of = f"{against['measure']}, of rows that were not trained on"
        lines.append(f"{against['after'] - against['before']:+.2f}, with a 95% interval from {low} to {high} ({of}).")
        if not kept:
            why = "Training made it worse" if against["high"] < 0 else "The interval reaches 0: it may be chance"
            lines.append(f"{why}, so the folder opens as the base model.")
        if folds := len(against.get("folds", ())):
            whole = " The model that is kept was then trained on all of them." if kept else ""
            lines.append(f"{against['rows']:,} rows in {folds} folds, each scored by a model of the others.{whole}")
    config = flatten(facts.run["config"])
    lines.append(f"{config['model.init_from']} on {config['data.train'] or 'no data'}; {facts.folder}")
    return lines


def _comparison(facts: Facts) -> PageSection | None:
    if not (against := facts.against):
        return None
    gain = charts.interval(
        against["low"], against["after"] - against["before"], against["high"], "the change and its 95% interval"
    )
    rows = [(f"fold {number}", *scores) for number, scores in enumerate(against.get("folds", ()), 1)]
    rows.append(("mean" if rows else "all", against["before"], against["after"]))
    meaning = "Each model was scored on the same rows. A change is believed where its interval does not reach 0."
    content = f'<div class="panels charts">{charts.changes(rows, against["measure"])}{gain}</div>'
    return PageSection("Before and after", meaning, content)


def _scored(facts: Facts) -> list[str]:
    """The names of the scores over the steps, the one that chose the checkpoint first."""
    return list(dict.fromkeys(name for line in facts.lines for name in line if name.startswith(SCORE)))


def _title(name: str) -> str:
    return name.removeprefix(SCORE).replace("_", " ")


def _curves(facts: Facts) -> PageSection:
    best = facts.result.get(BEST_STEP)
    drawn = [charts.curve(points, "loss") for points in [facts.curve("loss")] if points]
    drawn += [charts.curve(facts.curve(name), _title(name), best) for name in _scored(facts)[:MOST_CURVES]]
    if not drawn:
        return PageSection("Loss and scores", "No step was logged.", "")
    ringed = " The ring is the checkpoint that is kept." if best is not None and _scored(facts) else ""
    scores = ", and development scores: the first chooses the checkpoint" if _scored(facts) else ""
    meaning = f"The loss of single batches{scores}.{ringed}"
    return PageSection("Loss and scores", meaning, f'<div class="panels charts">{"".join(drawn)}</div>')


def _heat_maps(facts: Facts) -> PageSection | None:
    pairs = facts.examples.get("pairs", [])
    maps = {when: facts.examples[when] for when in ("before", "after") if facts.examples.get(when) and pairs}
    if not maps:
        return None
    values = [value for rows in maps.values() for row in rows for value in row]
    low, high = min(values), max(values)
    shown = "".join(_heat_map(when, rows, low, high) for when, rows in maps.items())
    texts = ([f"<bdi>{html.escape(text)}</bdi>" for text in pair] for pair in pairs)
    names = "".join(f"<li>{' <span class=soft>↔</span> '.join(pair)}</li>" for pair in texts)
    meaning = (
        "Cosines of the first text of each pair (rows) with the second of each (columns), both maps on one scale. "
        "Good: the framed cells, the pairs, have the strongest colour of their row. "
        f"{'After: by a model that never saw them. ' * bool(facts.folds)}Look at the texts before you share this page."
    )
    content = f'<div class="panels">{shown}</div><ol class="texts">{names}</ol>'
    return PageSection("Pairs that were not trained on", meaning, content)


def _heat_map(when: str, rows: Sequence[Sequence[float]], low: float, high: float) -> str:
    own = [row[place] for place, row in enumerate(rows)]
    others = [value for place, row in enumerate(rows) for other, value in enumerate(row) if other != place]
    means = f"pairs {sum(own) / len(own):.2f}" + (f", others {sum(others) / len(others):.2f}" if others else "")
    head = "".join(f"<th scope=col>{place + 1}</th>" for place in range(len(rows)))
    lines = []
    for place, row in enumerate(rows):
        cells = "".join(
            f'<td{" class=own" * (other == place)} style="--s:{(value - low) / (high - low or 1):.2f}">{value:.2f}</td>'
            for other, value in enumerate(row)
        )
        lines.append(f"<tr><th scope=row>{place + 1}</th>{cells}</tr>")
    table = f'<table class="heat"><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
    return f"<figure><figcaption>{when}: mean cosine of {means}</figcaption>{table}</figure>"


def _moved(facts: Facts) -> PageSection | None:
    parts = []
    for name, title in (("rose", "What improved most"), ("fell", "What got worse most")):
        for number, example in enumerate(facts.examples.get(name, [])):
            head = f"<h3>{title}</h3>" * (number == 0)
            texts = "".join(
                f'<dt>{html.escape(label)}</dt><dd dir="auto">{html.escape(text or "–")}</dd>'
                for label, text in example["texts"].items()
            )
            change = html.escape(example["change"])
            parts.append(f'{head}<div class="case {name}"><p class="note">{change}</p><dl>{texts}</dl></div>')
    by = " by a model that never saw them" * bool(facts.folds)
    meaning = f"Rows that were not trained on, before training and after{by}."
    return PageSection("The best and the worst", meaning, "".join(parts)) if parts else None


def _scores(facts: Facts) -> PageSection | None:
    """The scores of the kept checkpoint by task."""
    rows, content = similarity_rows(task_scores(facts.result)), ""
    if rows:
        content = page.table("Spearman × 100", ["task", "score", "pairs"], rows)
    if "retrieval_average" in facts.result:
        header, *rows = retrieval_rows(facts.result["retrieval"])
        content += page.table("Retrieval, × 100", header, rows)
    return PageSection("Scores of the model that is kept", "", content) if content else None


def _settings(facts: Facts) -> PageSection:
    config, recipe = flatten(facts.run["config"]), facts.run.get(RECIPE, {})
    before = recipe["changed"] if recipe else flatten(default_config())
    rows = [
        [name, _value(value), _value(before.get(name))]
        for name, value in config.items()
        if (name in before or not recipe) and not name.startswith(FREE) and plain(value) != plain(before.get(name))
    ]
    of = f"the recipe {recipe['name']}" if recipe else "the package's defaults"
    content = page.table(f"Fields that differ from {of}", ["field", "this run", of], rows, text=True) if rows else ""
    return PageSection("Settings", "" if rows else f"All are those of {of}.", content)


def _value(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    text = "(empty)" if text == "" else text
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _machine(facts: Facts) -> PageSection:
    device, started = facts.run["device"], _written(facts.folder / "run.json")
    last = max(_written(facts.folder / name) for name in ("metrics.jsonl", "result.json", "run.json"))
    speed = [line["sentences_per_second"] for line in facts.lines if "sentences_per_second" in line]
    rows = {
        "device": f"{device['count']} × {device['kind']} ({device['platform']})",
        "started": f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(started))} UTC",
        "time until its last number": f"{tqdm.format_interval(max(last - started, 0))}, pauses included",
        "steps": f"{facts.steps:,}" + (f", {speed[-1]:,.0f} sentences per second" if speed else ""),
        "rows to train on": f"{facts.run['examples']:,}",
    }
    versions = f"<details><summary>Versions</summary>{page.facts({'Versions': facts.run['versions']})}</details>"
    return PageSection("Machine and time", "", page.facts({"Run": rows}) + versions)


def _written(path: Folder) -> float:
    """When a file was written, in seconds since 1970; 0 where there is none."""
    if not path.is_file():
        return 0.0
    about: Any = path.stat()  # of a store it has other names
    return float(about.mtime if is_remote(path) else about.st_mtime)


def _next(facts: Facts) -> PageSection:
    folder = shlex.quote(str(facts.folder))
    commands = [
        f'simcse-jax search --model {folder} --data texts.txt --query "…"',
        f"simcse-jax serve --model {folder}",
        f"simcse-jax export --workdir {folder} --output DIR",
    ]
    shown = html.escape("\n".join(commands))
    return PageSection("Next", "Search in texts of your own, serve the model, or export it.", f"<pre>{shown}</pre>")
