"""The options of `simcse-jax encode`."""

import argparse
import itertools
import sys
from collections.abc import Sequence

from simcse_jax.commands.command_line import MODEL, Parser, add_dtype, add_prompts, with_new_spellings
from simcse_jax.errors import UserError
from simcse_jax.host.storage import is_remote, local_path
from simcse_jax.models.config import POOLERS

# New names of options, by their earlier names.
RENAMED = {
    "--compute-dtype": "--dtype",
    "--dtype": "--output-dtype",
    "--processes": "--parts",
    "--process-id": "--part",
}
SAVE_EVERY = 32768
WITH_RANGES = ("int8", "uint8")
SMALL = (*WITH_RANGES, "binary", "ubinary")
KINDS = (".npy", ".parquet")


def renamed(arguments: Sequence[str]) -> dict[str, str]:
    """Those of `RENAMED` that apply to these arguments.

    `--dtype` was the output's type. It still is with `--compute-dtype`, and with a type that only outputs have.
    """
    given = [argument.partition("=")[0] for argument in arguments]
    values = {argument.removeprefix("--dtype=") for argument in arguments if argument.startswith("--dtype=")}
    values |= {value for option, value in itertools.pairwise(arguments) if option == "--dtype"}
    earlier = "--compute-dtype" in given or "float16" in values
    return {old: new for old, new in RENAMED.items() if old != "--dtype" or earlier}


def parse() -> argparse.Namespace:
    """The options, after all checks that need no file."""
    parser = Parser(
        prog="simcse_jax.commands.encode",
        description="Encodes the sentences of a file, or of many into a folder. Needs a model and the files. Writes "
        "the embeddings to --output; until they are complete, .OUTPUT.partial and .OUTPUT.state.json, or some of the "
        "folder's files, from which the same command resumes.",
    )
    parser.add_argument("--model", required=True, help=MODEL)
    parser.add_argument(
        "--input",
        required=True,
        help="a .txt (a sentence a line), .csv, .tsv, .jsonl or .parquet file; for a folder also a pattern, or several "
        "with commas, on a disk or in a bucket",
    )
    parser.add_argument(
        "--output",
        required=True,
        help="a .npy, a .parquet with columns sentence, row, embedding, or a folder for .parquet files: one that "
        "exists, FOLDER/ or gs://…",
    )
    parser.add_argument(
        "--column", help="the column of the sentences (default: sentence, text, sent0 or anchor, or the only one)"
    )
    parser.add_argument("--pooler", choices=POOLERS, help="from tokens to an embedding (default: the model's own)")
    parser.add_argument("--num-layers", type=int, default=0, help="keep the first n layers (default: all)")
    parser.add_argument("--max-length", type=int, help="the most tokens of a sentence (default: the model's own)")
    parser.add_argument("--batch-size", type=int, default=64, help="sentences encoded together on each device")
    add_dtype(parser)
    add_prompts(parser)
    normalize = parser.add_mutually_exclusive_group()
    normalize.add_argument(
        "--normalize",
        action="store_true",
        default=None,
        help="scale to unit length (default: as the model says)",
    )
    normalize.add_argument(
        "--no-normalize", action="store_false", dest="normalize", default=None, help="keep the encoder's lengths"
    )
    parser.add_argument(
        "--output-dtype",
        choices=("float32", "float16", *SMALL),
        default="float32",
        help="the type of the output: numbers, a byte an element (int8, uint8), or a bit (binary, ubinary: packed)",
    )
    calibrated = parser.add_mutually_exclusive_group()
    calibrated.add_argument(
        "--ranges",
        help="for int8 and uint8: an earlier output whose ranges to use, or a .npy (2, elements): the smallest and the "
        "largest value of each element (default: those of the first 16,384 rows)",
    )
    calibrated.add_argument(
        "--calibration", help="for int8 and uint8: embeddings, as this command writes them, whose ranges to use"
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="into a folder: this process, next to others with the same command, or the hosts of a Ray cluster",
    )
    parser.add_argument("--address", help="of the Ray cluster, or auto (default: one is started on this machine)")
    parser.add_argument("--hosts", type=int, help="of the Ray cluster, an actor on each (default: all)")
    parser.add_argument("--block-rows", type=int, help="rows of a file in the folder (default: 131072)")
    parser.add_argument("--keep-text", action="store_true", help="write the sentences into the folder too")
    parser.add_argument(
        "--tokens",
        action="store_true",
        help="the embeddings of tokens: for each sentence a list, into a .parquet or a folder",
    )
    parser.add_argument("--save-every", type=int, help=f"rows that a kill can lose at most (default: {SAVE_EVERY})")
    parser.add_argument("--parts", type=int, default=1, help="parts that the rows are divided into, a file each")
    parser.add_argument("--part", type=int, help="the one to encode, from 0; other commands encode the others")
    arguments = parser.spelled_out(sys.argv[1:], RENAMED)
    args = parser.parse_args(with_new_spellings(arguments, renamed(arguments)))
    for option in ("batch_size", "save_every", "parts", "hosts", "block_rows"):
        value, name = getattr(args, option), option.replace("_", "-")
        if value is not None and value < 1:
            raise UserError(f"--{name} {value}: must be 1 or more")
        if value is not None and value >= 2**31:
            raise UserError(f"--{name} {str(value)[:40]}: must be below 2³¹")
    named = args.output.endswith("/") or is_remote(args.output)
    is_folder = not args.output.lower().endswith(KINDS) and local_path(args.output).is_dir()
    args.folder = bool(args.output) and (named or is_folder)
    check_options_of_folders(args)
    if args.tokens:
        check_options_of_tokens(args)
    for name, value in {"--ranges": args.ranges, "--calibration": args.calibration}.items():
        if value is not None and args.output_dtype not in WITH_RANGES:
            raise UserError(f"{name}: is for --output-dtype {' and '.join(WITH_RANGES)}")
    if args.parts > 1 and args.output_dtype in WITH_RANGES and not (args.ranges or args.calibration):
        raise UserError(f"--parts: all need the same ranges of {args.output_dtype}; give --ranges or --calibration")
    args.save_every = args.save_every or SAVE_EVERY
    if args.part is None:
        if args.parts > 1:
            raise UserError("--parts: give --part too, the one to encode, from 0")
        args.part = 0
    if not 0 <= args.part < args.parts:
        raise UserError(f"--part {args.part}: must be from 0 to {args.parts - 1}, below --parts")
    return args


def check_options_of_folders(args: argparse.Namespace) -> None:
    """Refuses options that have no effect.

    Raises:
      UserError: naming one, for an output that is a folder or a file, or an engine.
    """
    if args.folder:
        if is_remote(args.output) and args.output.lower().endswith(KINDS):
            raise UserError(
                f"--output {args.output}: a single file is written to a disk; name a folder: {args.output}/"
            )
        if args.parts > 1 or args.part is not None:
            raise UserError("--parts, --part: a folder needs none; give the same command to each process")
        if args.save_every is not None:
            raise UserError("--save-every: a kill loses the blocks that are being made; set --block-rows")
    else:
        given = {"--block-rows": args.block_rows, "--keep-text": args.keep_text or None}
        given["--engine ray"] = True if args.engine == "ray" else None
        for name, value in given.items():
            if value is not None:
                raise UserError(f"{name}: {args.output} is a file; name a folder: --output FOLDER/")
    for name, value in {"--address": args.address, "--hosts": args.hosts}.items():
        if value is not None and args.engine != "ray":
            raise UserError(f"{name}: needs --engine ray")


def check_options_of_tokens(args: argparse.Namespace) -> None:
    """Refuses options that have no effect on the embeddings of tokens, and files that cannot have them.

    Raises:
      UserError: naming one.
    """
    given = {"--pooler": args.pooler, "--truncate-dim": args.truncate_dim, "--save-every": args.save_every}
    given |= {"--parts": args.part if args.parts == 1 else args.parts}
    given |= {"--normalize": args.normalize or None, "--no-normalize": args.normalize is False or None}
    given |= {f"--output-dtype {args.output_dtype}": True if args.output_dtype in SMALL else None}
    for name, value in given.items():
        if value is not None:
            raise UserError(f"{name}: is for sentences; leave it out with --tokens")
    if not args.folder and args.output.lower().endswith(".npy"):
        raise UserError(f"--tokens: writes .parquet, or a folder; {args.output} has rows of one length")
