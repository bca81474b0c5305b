"""STS and retrieval at several sizes and precisions of the embeddings, before and after training.

    python -m benchmarks.retrieval_scores --data SENTEVAL --collections FOLDER FOLDER --before MODEL --after RUN RUN RUN

Each model encodes each text once; its embeddings are then cut to their first elements, and kept in float32, in a byte
or in a bit an element. Queries stay float32, as in an index; both sentences of a pair of STS are kept alike. Documents
in bytes and bits are all compared: that is what an index finds that rescores enough candidates. Writes a line for each
model, size and precision to --output (.csv), a picture of them beside it, and prints a table: the models of --after as
mean ± standard deviation, and for retrieval the p of a paired test over the queries, of their means over those models
and the scores before.
"""

import csv
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.options import Parser
from simcse_jax import SimCSE
from simcse_jax.choices import TASKS
from simcse_jax.commands.command_line import run_command
from simcse_jax.evaluation import plotting, retrieval, sts
from simcse_jax.vectors.quantization import Quantization, ranges_of

MEASURES = ("ndcg@10", "recall@10")
SIZES = (384, 128, 64)
PRECISIONS = ("float32", "int8", "binary")


class Kept:
    """A model whose embeddings are kept in a size and a precision, for evaluators.

    `rows` (N, D) float32 are the embeddings of `numbers`' sentences; the ranges of bytes are found in all of them.
    """

    similarity_fn_name = "cosine"

    def __init__(self, numbers: dict[str, int], rows: np.ndarray, size: int, precision: str):
        cut = rows[:, :size]
        self._numbers = numbers
        self._rows = cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), 1e-12)
        ranges = ranges_of(self._rows) if precision == "int8" else None
        kind = Quantization(precision, size, ranges)
        self._kept = kind.decode(kind.encode(self._rows))

    def _places(self, sentences: Sequence[str]) -> list[int]:
        return [self._numbers[sentence] for sentence in sentences]

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        """(N, D) embeddings as they are kept."""
        return self._kept[self._places(sentences)]

    def encode_query(self, sentences: Sequence[str]) -> np.ndarray:
        """(N, D) embeddings in float32."""
        return self._rows[self._places(sentences)]

    encode_document = __call__


Queries = dict[str, float]  # by query


def scores(
    name: str, texts: list[str], pairs: dict[str, sts.Pairs], collections: dict
) -> tuple[list[dict[str, object]], list[dict[str, Queries]]]:
    """A model's figures, a dictionary for each size and precision; "sts" is the mean of the tasks.

    Also as many dictionaries with the first measure of each query, by task.
    """
    rows = SimCSE(name, truncate_dim=None).encode(texts, show_progress_bar=True)
    numbers = {text: number for number, text in enumerate(texts)}
    found, every_query = [], []
    for size in SIZES:
        for precision in PRECISIONS:
            kept = Kept(numbers, rows, size, precision)
            tasks = sts.evaluate(kept, pairs)
            figures: dict[str, object] = {task: round(result["spearman"], 4) for task, result in tasks.items()}
            figures["sts"] = round(statistics.fmean(figures.values()), 4)
            ranked = retrieval.Retrieval(collections, MEASURES, per_query=True)(kept)["retrieval"]
            every_query.append({task: result["per_query"][MEASURES[0]] for task, result in ranked.items()})
            for task, result in ranked.items():
                figures |= {f"{task} {measure}": result[measure] for measure in MEASURES}
            bytes_ = Quantization(precision, size, None).width * (4 if precision == "float32" else 1)
            found.append({"model": name, "size": size, "precision": precision, "bytes": bytes_} | figures)
    return found, every_query


def over_queries(after: Sequence[Queries], before: Queries) -> float | None:
    """The p of a paired test over the queries: is the mean of the models' scores another one than before?"""
    means = {query: statistics.fmean(each[query] for each in after) for query in before}
    return retrieval.compare(means, before)["p"]


def draw(lines: Sequence[Mapping[str, Any]]) -> bytes:
    """A panel for each task: the score over the size, before (the first model) and after, in floats and bits."""
    columns = {"sts": "STS", **{name: name.replace("ndcg", "nDCG") for name in lines[0] if name.endswith(MEASURES[0])}}
    with plotting.new_figure((3.2 * len(columns), 2.8)) as (figure, pictures):
        for panel, (name, heading) in zip(
            plotting.panels(figure, len(columns), len(columns)), columns.items(), strict=True
        ):
            drawn = [(precision, when) for precision in ("float32", "binary") for when in ("before", "after")]
            for (precision, when), style in zip(drawn, plotting.styles(map(" ".join, drawn)).values(), strict=True):
                means = [
                    statistics.fmean(
                        float(line[name])
                        for line in lines
                        if (str(line["size"]), line["precision"]) == (str(size), precision)
                        and (line["model"] == lines[0]["model"]) == (when == "before")
                    )
                    for size in SIZES
                ]
                panel.plot(list(map(str, SIZES)), means, label=f"{precision}, {when}", **style)
            panel.set(title=heading, xlabel="elements")
            plotting.add_grid(panel)
        plotting.add_legend(figure)
    return pictures["png"]


def main() -> None:
    """Scores all models and prints the table."""
    parser = Parser(prog="benchmarks.retrieval_scores", description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--collections", required=True, nargs="+")
    parser.add_argument("--before", required=True)
    parser.add_argument("--after", required=True, nargs="+")
    parser.add_argument("--output", required=True, type=Path)
    args = parser.parse_args()
    pairs, missing = sts.read(args.data, list(TASKS))
    collections = retrieval.read(args.collections)
    every = [text for task in pairs.values() for text in (*task.first, *task.second)]
    every += [text for task in collections.values() for text in (*task.first, *task.second)]
    texts = list(dict.fromkeys(every))
    by_model = [scores(name, texts, pairs, collections) for name in (args.before, *args.after)]
    found = [line for lines, _ in by_model for line in lines]
    before, *after_queries = [queries for _, queries in by_model]
    with open(args.output, "w", newline="") as file:
        writer = csv.DictWriter(file, found[0])
        writer.writeheader()
        writer.writerows(found)
    args.output.with_suffix(".png").write_bytes(draw(found))
    columns = ["sts", *(f"{task} {MEASURES[0]}" for task in collections)]
    print(f"{len(texts):,} texts; STS is the mean of {', '.join(pairs)}; not there: {', '.join(missing) or 'none'}\n")
    print("| size | precision | bytes |", " | ".join(f"{name} before | after | p" for name in columns), "|")
    print("|", " | ".join(["---"] * (3 + 3 * len(columns))), "|")
    for number, line in enumerate(by_model[0][0]):
        alike = [other for other in found if (other["size"], other["precision"]) == (line["size"], line["precision"])]
        cells = [line["size"], line["precision"], line["bytes"]]
        for name in columns:
            after = [float(other[name]) for other in alike if other["model"] != args.before]
            spread = f" ± {statistics.stdev(after):.2f}" if len(after) > 1 else ""
            p = None
            if (task := name.removesuffix(f" {MEASURES[0]}")) in collections:
                p = over_queries([queries[number][task] for queries in after_queries], before[number][task])
            cells += [f"{line[name]:.2f}", f"{statistics.fmean(after):.2f}{spread}", "" if p is None else f"{p:.2g}"]
        print("|", " | ".join(map(str, cells)), "|")


if __name__ == "__main__":
    run_command(main)
