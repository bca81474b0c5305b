"""The options that benchmarks of training steps share: the model, the sentences, the batch, the rounds."""

import argparse

from benchmarks.random_models import MINILM
from simcse_jax.host.outputs import output_file

SENTENCES = "examples/everyday/triplets.csv"  # the project's own


def add_options(parser: argparse.ArgumentParser, *, data: str, steps: int, warmup: int, rounds: int) -> None:
    """Adds them.

    Args:
      parser: of the benchmark.
      data: what the file of `--data` must have.
      steps, warmup, rounds: the defaults.
    """
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model", default=MINILM, help="a BERT: a folder, a hub id or package:NAME")
    model.add_argument(
        "--base",
        nargs="?",
        const=True,
        default=False,
        metavar="FOLDER",
        help="a BERT-base-sized model with random weights, made for this or (FOLDER) before",
    )
    parser.add_argument("--data", default=SENTENCES, help=data)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-length", type=int, default=32, help="tokens")
    parser.add_argument("--steps", type=int, default=steps, help="of a round")
    parser.add_argument("--warmup", type=int, default=warmup, help="steps before the first round")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--at-once", action="store_true", help="build all contenders at the same time")
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
