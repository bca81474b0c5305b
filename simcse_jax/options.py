"""Options that several commands have."""

from simcse_jax.config import DTYPES
from simcse_jax.errors import Parser


def add_compute_dtype(parser: Parser) -> None:
    """Adds `--compute-dtype`, the `dtype` of `SimCSE`."""
    parser.add_argument(
        "--compute-dtype",
        choices=DTYPES,
        default=DTYPES[0],
        help="of the encoder's matrix products (default: %(default)s)",
    )
