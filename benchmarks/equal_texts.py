"""Equal texts as negatives, left out, and kept apart by us and sentence-transformers: what trained models retrieve.

    python -m benchmarks.equal_texts --start MODEL --pairs PAIRS.csv --collections FOLDER FOLDER --output FOLDER

MODEL is a folder that both programs read; PAIRS.csv and the collections are those of `benchmarks.retrieval_data`. Some
rows of the pairs are drawn, and a tenth of the data are copies of some of these (--of). Each seed trains four models
on them from MODEL, with the same batch size, steps, learning rate, temperature and length: with
`data.equal_texts=negatives`, with `left_out`, with `data.no_duplicates`, and sentence-transformers'
MultipleNegativesRankingLoss with `BatchSamplers.NO_DUPLICATES`. All are scored by our evaluator, with --documents as
in `simcse-jax evaluate`. What is there already is not trained again.
"""

import argparse
import csv
import statistics
from pathlib import Path

import numpy as np

from benchmarks.options import Parser
from simcse_jax import SimCSE
from simcse_jax.commands.command_line import run_command
from simcse_jax.config import default_config
from simcse_jax.evaluation import retrieval
from simcse_jax.training.run import train_and_evaluate

SEEDS = (42, 43, 44)
LENGTH, TEMPERATURE = 32, 0.05
OURS = {  # fields of data
    "negatives": {"equal_texts": "negatives"},
    "left out": {"equal_texts": "left_out"},
    "kept apart": {"equal_texts": "negatives", "no_duplicates": True},
}
NAMES = (*OURS, "kept apart by sentence-transformers")


def write_copies(pairs: Path, count: int, of: int, output: Path) -> Path:
    """A file of `count` rows: nine in ten are different ones, the others copies of `of` of these (0: of any)."""
    with open(pairs, newline="") as file:
        header, *rows = csv.reader(file)
    generator = np.random.default_rng(0)
    rows = list(dict.fromkeys(map(tuple, rows)))
    different = [rows[place] for place in generator.permutation(len(rows))[: count - count // 10]]
    copied = generator.integers(of or len(different), size=count // 10)
    with open(output, "w", newline="") as file:
        csv.writer(file).writerows([header, *different, *(different[place] for place in copied)])
    return output


def train_ours(args: argparse.Namespace, data: Path, name: str, seed: int, workdir: Path) -> str:
    """Trains with our package; returns the model's name."""
    config = default_config()
    config.seed, config.model.init_from = seed, args.start
    config.model.pooler, config.model.mlp = "avg", "none"
    config.data.train, config.data.max_length = str(data), LENGTH
    config.data.update(OURS[name])
    config.data.columns.update(anchor="hypothesis", positive="premise")  # in the order of the file, as theirs
    config.objective.info_nce.temperature = TEMPERATURE
    config.train.batch_size, config.train.epochs = args.batch_size, args.epochs
    config.train.learning_rate = args.learning_rate
    config.train.report_to, config.eval.data, config.eval.every = (), "", 0
    train_and_evaluate(config, str(workdir))
    return str(workdir)


def train_theirs(args: argparse.Namespace, data: Path, seed: int, folder: Path) -> str:
    """Trains with sentence-transformers; returns the model's folder."""
    if (folder / "modules.json").is_file():
        return str(folder)
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.base.sampler import BatchSamplers
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    model = SentenceTransformer(args.start, device="cpu")
    model.max_seq_length = LENGTH
    options = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "trainer"),
        per_device_train_batch_size=args.batch_size,
        num_train_epochs=args.epochs,
        learning_rate=args.learning_rate,
        dataloader_drop_last=True,
        batch_sampler=BatchSamplers.NO_DUPLICATES,
        seed=seed,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
    )
    loss = MultipleNegativesRankingLoss(model, scale=1 / TEMPERATURE)
    with open(data, newline="") as file:
        rows = list(csv.DictReader(file))
    SentenceTransformerTrainer(model, options, train_dataset=Dataset.from_list(rows), loss=loss).train()
    model.save(str(folder))
    return str(folder)


def main() -> None:
    """Trains, scores and prints the table."""
    parser = Parser(prog="benchmarks.equal_texts", description=__doc__.splitlines()[0])
    parser.add_argument("--start", required=True)
    parser.add_argument("--pairs", required=True, type=Path)
    parser.add_argument("--collections", required=True, nargs="+")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--rows", type=int, least=1, default=1280)
    parser.add_argument("--of", type=int, default=0)
    parser.add_argument("--documents", type=int, default=0)
    parser.add_argument("--batch-size", type=int, least=1, default=64)
    parser.add_argument("--epochs", type=int, least=1, default=4)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    data = write_copies(args.pairs, args.rows, args.of, args.output / "pairs.csv")
    scored = retrieval.Retrieval(retrieval.read(args.collections, documents=args.documents), ("ndcg@10",))
    found: dict[str, list[dict[str, float]]] = {"start": [], **{name: [] for name in NAMES}}
    for seed in (None, *SEEDS):
        for name in NAMES if seed else ("start",):
            folder = args.output / f"{name}-{seed}"
            if seed is None:
                model = args.start
            elif name in OURS:
                model = train_ours(args, data, name, seed, folder)
            else:
                model = train_theirs(args, data, seed, folder)
            scores = scored(SimCSE(model))["retrieval"]
            found[name].append({task: result["ndcg@10"] for task, result in scores.items()})
            print(name, seed, found[name][-1], flush=True)
    tasks = list(found["start"][0])
    print(f"\n| equal texts | {' | '.join(f'{task} nDCG@10' for task in tasks)} |\n|{' --- |' * (1 + len(tasks))}")
    for name, each in found.items():
        columns = [[scores[task] for scores in each] for task in tasks]
        spread = [f" ± {statistics.stdev(column):.2f}" if column[1:] else "" for column in columns]
        cells = [f"{statistics.fmean(column):.2f}{more}" for column, more in zip(columns, spread, strict=True)]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    run_command(main)
