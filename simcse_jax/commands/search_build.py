"""simcse-jax search build --embeddings FOLDER --output FOLDER: an index that need not fit into memory."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from simcse_jax.commands.command_line import MODEL, Parser, add_dtype, add_truncation, warnings_in_a_line
from simcse_jax.errors import UserError

if TYPE_CHECKING:
    from simcse_jax.index.embedding_files import EmbeddingFiles
    from simcse_jax.index.identity import ModelIdentity


def main(arguments: Sequence[str]) -> None:
    """Looks at all files first; a model is loaded only where the embeddings do not name theirs."""
    parser = Parser(
        prog="simcse_jax.commands.search build",
        description="Makes an index of embeddings, on a disk or in a bucket, or adds them to one. Needs the files that "
        "encode writes, and LanceDB. Writes the index to --output; the next search opens it with --index.",
    )
    parser.add_argument("--embeddings", required=True, help="a folder of .parquet or .npy files, or one; gs:// too")
    parser.add_argument("--output", required=True, help="the folder of the index; one that is there is added to")
    parser.add_argument("--backend", choices=("lance",), default="lance", help="the library that keeps the index")
    parser.add_argument("--model", help=f"what made the embeddings, if the files do not say so: {MODEL}")
    parser.add_argument("--pooler", help="the pooler that made them, with --model (default: the model's own)")
    parser.add_argument(
        "--precision",
        choices=("float32", "int8", "binary"),
        help="what the index keeps of an embedding: 4 bytes an element; int8, a byte and a bit; or binary, a bit "
        "(default: float32, or what it keeps already)",
    )
    parser.add_argument("--ranges", help="for --precision int8: a file with them (default: those of the embeddings)")
    parser.add_argument(
        "--codes",
        choices=("product", "int8", "binary"),
        help="LanceDB's codes of vectors in float32, by which rows are found: a byte for four elements; int8, a byte "
        "an element; or binary, a bit (default: product, or what it has already)",
    )
    add_dtype(parser)
    add_truncation(parser)
    args = parser.parse_args(list(arguments))
    for option, default in (("pooler", None), ("truncate_dim", None), ("dtype", parser.get_default("dtype"))):
        if getattr(args, option) != default and not args.model:
            raise UserError(f"--{option.replace('_', '-')}: is for --model, which is not given")
    from simcse_jax.encoding.calibration import read_ranges
    from simcse_jax.index.embedding_files import EmbeddingFiles
    from simcse_jax.index.lance import Wanted
    from simcse_jax.index.lance_build import build, check_folder

    folder = check_folder(args.output, args.embeddings)
    files = EmbeddingFiles(args.embeddings)
    ranges = None if args.ranges is None else read_ranges(args.ranges, files.dimension)
    made_by = _maker(files, args)
    with warnings_in_a_line():
        about, added = build(folder, files, made_by, Wanted(args.precision, ranges, args.codes))
    if not added:
        print(f"{args.output}: has these {files.count:,} rows already; {about.rows:,} in all, of {made_by.name}")
        return
    numbers = f"{about.last - files.count + 1:,} to {about.last:,}"
    print(f"{args.output}: {files.count:,} rows added, numbered {numbers}; {about.rows:,} in all, of {made_by.name}")


def _maker(files: "EmbeddingFiles", args: argparse.Namespace) -> "ModelIdentity":
    """The model that made the embeddings, as they say or as the user says."""
    from simcse_jax.index.identity import check_maker

    said = files.maker
    if args.model is None:
        if said is None:
            raise UserError(f"{files.name}: does not say which model made the embeddings; give --model")
        return said
    from simcse_jax.simcse import SimCSE

    given = SimCSE(args.model, pooler=args.pooler, dtype=args.dtype, truncate_dim=args.truncate_dim).identity()
    if said is not None:
        check_maker(files.parts[0].path, said, given)
    return given
