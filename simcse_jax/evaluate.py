"""python -m simcse_jax.evaluate --model M --data SENTEVAL_FOLDER: STS scores of any model."""

import json
from pathlib import Path

from simcse_jax.config import TASKS, nearest
from simcse_jax.errors import Parser, UserError, run_command
from simcse_jax.models.config import POOLERS


def main() -> None:
    """Reads the data first, so that a mistake in it is told before a model is loaded."""
    parser = Parser(prog="simcse_jax.evaluate", description="Scores a model on semantic textual similarity.")
    parser.add_argument("--model", required=True, help="a folder, a hub id, package:NAME, or a workdir")
    parser.add_argument("--data", required=True, help="SentEval's data/downstream, or a file of graded pairs")
    parser.add_argument("--tasks", default=",".join(TASKS), help="comma-separated (default: all seven)")
    parser.add_argument("--split", choices=("dev", "test"), default="test", help="dev: of STS-B and SICK-R")
    parser.add_argument("--pooler", choices=POOLERS, help="default: the model's own")
    parser.add_argument("--num-layers", type=int, default=0, help="keep the first n layers (default: all)")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--output", help="a JSON file for the scores")
    args = parser.parse_args()
    tasks = [task.strip() for task in args.tasks.split(",") if task.strip()]
    for task in tasks:
        if task not in TASKS:
            raise UserError(f"--tasks: no task {task!r}; the nearest one is {nearest(task, TASKS)}")
    if not tasks:
        raise UserError(f"--tasks names none; there are {', '.join(TASKS)}")
    if args.batch_size < 1:
        raise UserError(f"--batch-size {args.batch_size}: must be 1 or more")
    output = Path(args.output).expanduser() if args.output else None
    if output and (output.is_dir() or not output.absolute().parent.is_dir()):
        raise UserError(f"--output {args.output}: must be a file in a folder that exists")

    from simcse_jax.evaluation import sts
    from simcse_jax.simcse import SimCSE
    from simcse_jax.storage import write_atomically

    pairs, missing = sts.read(args.data, tasks, args.split)
    if missing:
        what = "has no development set" if args.split == "dev" else "not there"
        print(f"{args.data}: {', '.join(missing)} {what}; left out, so no average is given", flush=True)
    model = SimCSE(args.model, pooler=args.pooler, num_layers=args.num_layers, batch_size=args.batch_size)
    head = " with head" if model.use_head else ""
    print(f"{args.model}: pooler {model.pooler}{head}; Spearman × 100, all pairs of a task together", flush=True)
    results = sts.evaluate(model.encode, pairs)
    print(sts.table(results, missing))
    if output:
        write_atomically(output, json.dumps({**results, **sts.average(results, missing)}, indent=2) + "\n")


if __name__ == "__main__":
    run_command(main)
