"""Two commits of this repository, timed in turn on this machine, in the same environment: A B A B …

    python -m benchmarks.compare OLD NEW [--benchmark train_step encode host_work] [--rounds 6] [--output FILE]

A commit is anything that git knows: main, HEAD~3, a tag, 1a2b3c4. Each is checked out in a git worktree of its own,
which is removed at the end, and runs its own benchmarks there; changes that are not committed are not measured. All
options are this checkout's. The ratio is the median of the rounds' ratios, with the least and the most in brackets: a
difference that lies within what a commit differs from itself (`compare HEAD HEAD`) means nothing.

`train_step` is a step of unsupervised SimCSE, `encode` is `SimCSE.encode`, `host_work` is what `benchmarks.host_work`
measures.
"""

import argparse
import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import side_by_side
from benchmarks.encode import sentences_of
from benchmarks.machine import ROOT
from benchmarks.options import Parser
from benchmarks.random_models import MINILM, folder_of_model, make
from benchmarks.side_by_side import Comparison, Contender
from benchmarks.step_options import SENTENCES
from simcse_jax.commands.command_line import run_command
from simcse_jax.errors import UserError
from simcse_jax.host.outputs import output_file

UNITS = {"train_step": "sentences", "encode": "sentences", "host_work": "steps"}  # of each benchmark
FACTORIES = {
    "train_step": "benchmarks.training:ours",
    "encode": "benchmarks.encoders:ours",
    "host_work": "benchmarks.host_work:steps",
}


class Commit(NamedTuple):
    """A commit: its name for people, and its full hash."""

    name: str
    sha: str


def commits(old: str, new: str, root: Path = ROOT) -> list[Commit]:
    """The two commits.

    Raises:
      UserError: naming the one that git does not know, or that there is no git, or no repository.
    """
    found = []
    for which, name in (("OLD", old), ("NEW", new)):
        done = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if done.returncode:
            if _git(root, "rev-parse", "--git-dir").returncode:
                raise UserError(f"{root}: is no git repository, so it has no commits")
            raise UserError(f"{which} {name}: no such commit in {root}; see `git log --oneline`, or fetch it first")
        sha = done.stdout.strip()
        found.append(Commit(f"{which}, {name}" + ("" if sha.startswith(name) else f", {sha[:10]}"), sha))
    return found


@contextlib.contextmanager
def worktree(commit: Commit, root: Path = ROOT) -> Iterator[Path]:
    """A folder with the files of a commit, which exists only within the block.

    Raises:
      UserError: when git cannot make it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / commit.sha[:10]
        done = _git(root, "worktree", "add", "--detach", str(path), commit.sha)
        try:
            if done.returncode:
                raise UserError(f"{commit.name}: cannot be checked out: {' '.join(done.stderr.split()[-30:])}")
            yield path
        finally:
            _git(root, "worktree", "remove", "--force", str(path))


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    except OSError as error:
        raise UserError(f"git: {error.strerror}; it must be installed") from None


def check_has(commit: Commit, path: Path, benchmark: str) -> None:
    """Checks that a commit has the benchmark.

    Raises:
      UserError: when it is older than that.
    """
    module, _, function = FACTORIES[benchmark].partition(":")
    file = path.joinpath(*module.split(".")).with_suffix(".py")
    if not file.is_file() or f"def {function}(" not in file.read_text(encoding="utf-8"):
        raise UserError(f"{commit.name}: has no {module}.{function}; leave --benchmark {benchmark} out")


def options_of(benchmark: str, args: argparse.Namespace, model: str, folder: Path) -> dict[str, Any]:
    """The options of a benchmark's contender (see `FACTORIES`), the same for both commits, with files in `folder`."""
    if benchmark == "encode":
        sentences = folder / "sentences.json"
        sentences.write_text(json.dumps(sentences_of(args.data, None, args.rows)))
        files = {"sentences": str(sentences), "save": str(folder / "embeddings.npy")}
        return {**files, "model": model, "dtype": args.dtype, "batch_size": args.batch_size}
    step = {"data": str(Path(args.data).absolute()), "batch_size": args.batch_size, "max_length": args.max_length}
    if benchmark == "train_step":
        return {**step, "model": model, "dtype": args.dtype, "steps": args.steps, "warmup": args.steps}
    narrow = folder / "narrow"
    narrow.mkdir()
    make("narrow", str(narrow), MINILM)
    return {**step, "model": str(narrow), "num_layers": 1, "steps": 500, "warmup": 250}


def result(benchmark: str, comparison: Comparison) -> dict[str, Any]:
    """The figures of a benchmark, with `new_is`: how many times as fast NEW is, None where a commit failed."""
    old, new = list(comparison.rounds) if len(comparison.rounds) == 2 else (comparison.ours, "")
    ratio = side_by_side.spread(comparison.ratios(new, old))
    return {"benchmark": benchmark, "new_is": ratio, **comparison.to_json()}


def parse() -> argparse.Namespace:
    """The command line."""
    parser = Parser(prog="benchmarks.compare", description=__doc__.splitlines()[0])
    parser.add_argument("old", metavar="OLD", help="a commit")
    parser.add_argument("new", metavar="NEW", help="a commit")
    parser.add_argument("--benchmark", nargs="+", choices=tuple(FACTORIES), default=["train_step"])
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model", default=MINILM, help="a BERT: a folder, a hub id or package:NAME")
    model.add_argument("--base", action="store_true", help="a BERT-base-sized model with random weights")
    parser.add_argument("--data", default=str(ROOT / SENTENCES), help="sentences: .txt, or a .csv with sent0")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--batch-size", type=int, least=1, default=64)
    parser.add_argument("--max-length", type=int, least=1, default=32, help="tokens, of train_step and host_work")
    parser.add_argument(
        "--steps", type=int, least=1, default=4, help="of a round of train_step, and before the first one"
    )
    parser.add_argument("--rows", type=int, least=1, default=500, help="sentences of a round of encode")
    parser.add_argument("--rounds", type=int, least=1, default=6)
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    args = parser.parse_args()
    if not Path(args.data).is_file():
        raise UserError(f"--data {args.data}: no such file")
    return args


def main() -> None:
    """Prints a table and the ratio for each benchmark.

    Raises:
      UserError: for wrong options, and when a commit fails; its reason is in the table.
    """
    args = parse()
    both = commits(args.old, args.new)
    results = []
    with contextlib.ExitStack() as stack:
        paths = [stack.enter_context(worktree(commit)) for commit in both]
        for benchmark in args.benchmark:
            for commit, path in zip(both, paths, strict=True):
                check_has(commit, path, benchmark)
        print(side_by_side.heading(), flush=True)
        model = stack.enter_context(folder_of_model(args.base, args.model))
        for benchmark in args.benchmark:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            options = options_of(benchmark, args, model, folder)
            contenders = [
                Contender(commit.name, FACTORIES[benchmark], options, folder=path)
                for commit, path in zip(both, paths, strict=True)
            ]
            comparison = side_by_side.compare(benchmark, UNITS[benchmark], contenders, args.rounds)
            results.append(result(benchmark, comparison))
            print(f"\n{side_by_side.table(comparison)}")
            if ratio := results[-1]["new_is"]:
                spread = f"{ratio['min']:.3f} to {ratio['max']:.3f}"
                print(f"  {benchmark}: NEW is {ratio['median']:.3f} times as fast as OLD ({spread})", flush=True)
    side_by_side.report("compare", results, args.output)
    if failed := [each["benchmark"] for each in results if each["new_is"] is None]:
        raise UserError(f"{', '.join(failed)}: a commit failed, see above")


if __name__ == "__main__":
    run_command(main)
