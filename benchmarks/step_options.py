"""The options that benchmarks of training steps share: the model, the sentences, the batch, the rounds."""

from benchmarks.options import Parser
from benchmarks.random_models import MINILM
from benchmarks.side_by_side import ORDERS
from simcse_jax.host.outputs import output_file

SENTENCES = "examples/everyday/triplets.csv"  # the project's own


def add_options(parser: Parser, *, data: str, steps: int, warmup: int, rounds: int) -> None:
    """Adds them.

    Args:
      parser: of the benchmark.
      data: what the file of `--data` must have.
      steps, warmup, rounds: the defaults.
    """
    add_model(parser)
    parser.add_argument("--data", default=SENTENCES, help=data)
    parser.add_argument("--batch-size", type=int, least=1, default=64)
    parser.add_argument("--max-length", type=int, least=1, default=32, help="tokens")
    parser.add_argument("--steps", type=int, least=1, default=steps, help="of a round")
    parser.add_argument("--warmup", type=int, least=0, default=warmup, help="steps before the first round")
    parser.add_argument("--rounds", type=int, least=1, default=rounds)
    add_order(parser)
    parser.add_argument("--output", type=output_file, help="the figures as JSON")


def add_model(parser: Parser) -> None:
    """Adds `--model` and `--base`, for `random_models.folder_of_model`."""
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


def add_order(parser: Parser) -> None:
    """Adds the choice among `side_by_side.ORDERS`."""
    order = parser.add_mutually_exclusive_group()
    order.add_argument("--at-once", action="store_const", const="at once", dest="order", help="build all at a time")
    order.add_argument("--apart", action="store_const", const="apart", dest="order", help="one process at a time")
    parser.set_defaults(order=ORDERS[0])
