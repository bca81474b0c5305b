"""simcse-jax encode --model M --data corpus.txt --output emb.npy: the sentences of files as embeddings.

For a file, the input is read once before a model is loaded, so that a mistake in it is reported immediately. It is then
encoded some thousand rows at a time, so memory does not grow with it. A folder gets a file for each block of rows; any
number of processes, or the hosts of a Ray cluster, make them. The same command, given again, resumes after a kill.
"""

import argparse
import contextlib
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simcse_jax.commands.command_line import (
    MODEL,
    Parser,
    add_batch_size,
    add_dtype,
    add_pooler,
    add_prompts,
    say_next,
    warnings_in_a_line,
)
from simcse_jax.errors import UserError
from simcse_jax.host.hidden import COUNTED, DOT, MANIFEST, PLAN, RANGES
from simcse_jax.host.outputs import RESUMED, output_file, output_folder
from simcse_jax.host.storage import Folder, is_remote, local_path

if TYPE_CHECKING:
    from simcse_jax.bulk.embeddings.encoder import EncodingOptions
    from simcse_jax.data.sentences import SentenceFiles
    from simcse_jax.vectors.quantization import Ranges

BESIDE = f"{{}}.{RANGES}"  # a file next to a .npy of bytes or bits
SAVE_EVERY = 32768
WITH_RANGES = ("int8", "uint8")
SMALL = (*WITH_RANGES, "binary", "ubinary")
KINDS = (".npy", ".parquet")


def main() -> None:
    """The command."""
    run(parse(sys.argv[1:]))


def run(args: argparse.Namespace) -> None:
    """Encodes as the options say."""
    args.ranges_file, args.ranges = args.ranges, given_ranges(args)
    if args.folder:
        encode_into_folder(args)
        return
    output = check_output(args)
    from simcse_jax.data.sentences import SentenceFiles
    from simcse_jax.host.locks import held_next_to

    sentences = SentenceFiles(args.data, args.column)
    rows, fingerprint = sentences.scan()
    if rows < args.parts:
        raise UserError(f"--parts {args.parts}: {args.data} has only {rows} rows")
    first, end = (rows * part // args.parts for part in (args.part, args.part + 1))
    with held_next_to(output):
        if args.tokens:
            encode_tokens(args, sentences, output, rows)
            return
        encode_file(args, sentences, output, first, end, fingerprint)


def given_ranges(args: argparse.Namespace) -> "Ranges | None":
    """The ranges of `--ranges`, or of the embeddings of `--calibration`; None: neither is given.

    Raises:
      UserError: naming what cannot be read.
    """
    if args.ranges is not None:
        from simcse_jax.vectors.quantization import read_ranges

        return read_ranges(args.ranges)
    if args.calibration is None:
        return None
    from simcse_jax.index.embedding_files import EmbeddingFiles
    from simcse_jax.vectors.quantization import merge_ranges, ranges_of

    return merge_ranges(ranges_of(batch.embeddings) for batch in EmbeddingFiles(args.calibration).batches())


def encode_into_folder(args: argparse.Namespace) -> None:
    """Makes the blocks of the folder that are missing."""
    from simcse_jax.bulk.embeddings.blocks import encode_here
    from simcse_jax.bulk.embeddings.embeddings_folder import BLOCK_ROWS, make_plan
    from simcse_jax.bulk.embeddings.encoder import RowEncoder
    from simcse_jax.bulk.embeddings.on_ray import connected, encode_on_ray
    from simcse_jax.data.corpus.plan import expand
    from simcse_jax.data.corpus.shared_folder import enter, leave

    sources = expand([args.data], "--data")
    folder = output_of_folder(args, sources)
    options = options_of(args)
    with contextlib.ExitStack() as job:
        if args.engine == "ray":
            job.enter_context(connected(args.address))
            import jax

            jax.config.update("jax_platforms", "cpu")  # accelerators are the actors'
        encoder = RowEncoder(options)
        plan = make_plan(sources, args.column, encoder.about(), args.block_rows or BLOCK_ROWS, args.keep_text)
        enter(folder, plan, "that of other embeddings")
        try:
            if args.engine == "ray":
                manifest = encode_on_ray(folder, plan, options, args.hosts)
            else:
                manifest = encode_here(folder, plan, encoder)
        except UserError:
            leave(folder, plan, COUNTED, RANGES)
            raise
    if manifest is None:
        print(f"{args.output}: other processes are making the files that are left; the last one completes the folder")
        return
    files = f"{len(manifest.files)} file{'s' * (len(manifest.files) > 1)}"
    kind = "the tokens of {:,} sentences, {} elements each, {}" if args.tokens else "{:,} embeddings of {} elements, {}"
    what = kind.format(manifest.rows, manifest.dimension, args.output_dtype)
    print(f"{args.output}: {what}, in {files}")
    report_cut(manifest.cut, args.data, plan.key["--max-length"])
    say_build(args, encoder.maker())


def output_of_folder(args: argparse.Namespace, sources: Sequence[str]) -> Folder:
    """The folder to write to, which need not exist.

    Raises:
      UserError: when it cannot be written to, or has an input.
    """
    from simcse_jax.data.corpus.manifest import corpus_path
    from simcse_jax.data.corpus.shared_folder import check_own

    folder = corpus_path(args.output)
    if not is_remote(folder):
        own = [f"{DOT}{name}" for name in (PLAN, COUNTED, RANGES, MANIFEST)]
        output_folder(args.output, {"--model": args.model}, files=["embeddings-*", *own])
    for name in sources:  # which are too many for a comparison with each file of the folder
        same = name.rpartition("/")[0] == str(folder) if is_remote(name) else _is_in(local_path(name), folder)
        if same:
            raise UserError(f"--output {args.output}: is the folder of --data {name}; choose another")
    if folder.is_dir():
        check_own(folder)
    return folder


def _is_in(file: Path, folder: Folder) -> bool:
    """Whether a file, or what a link points to, lies in a folder."""
    return os.path.dirname(os.path.realpath(file)) == os.path.realpath(folder)


def options_of(args: argparse.Namespace) -> "EncodingOptions":
    """How sentences are encoded."""
    from simcse_jax.bulk.embeddings.encoder import EncodingOptions

    return EncodingOptions(**{field: getattr(args, field) for field in EncodingOptions.__dataclass_fields__})


def say_build(args: argparse.Namespace, maker: dict[str, Any] | None) -> None:
    """Says how an index is built of what was written, where one can be; `maker` is the model that it is for."""
    if maker is None or args.tokens or args.output_dtype in SMALL or args.parts > 1:
        return
    output, model = args.output.rstrip("/"), []
    if output.endswith(".npy"):  # other files name the model themselves
        if args.num_layers or args.prompt is not None or args.prompt_name is not None:
            return  # which `search build` cannot be given
        options = {"--model": args.model, "--pooler": args.pooler, "--truncate-dim": args.truncate_dim}
        options |= {"--dtype": args.dtype} if args.dtype != "float32" else {}
        model = [text for option, value in options.items() if value for text in (option, str(value))]
    name = f"{output.removesuffix('.npy').removesuffix('.parquet')}.lance"
    say_next("search", "build", "--embeddings", args.output, "--output", name, *model)


def report_cut(cut: int, name: object, max_length: int) -> None:
    """Says how many sentences were cut."""
    if cut:
        count = "1 sentence was" if cut == 1 else f"{cut:,} sentences were"
        print(f"{name}: {count} longer than {max_length} tokens and cut there", file=sys.stderr)


def check_output(args: argparse.Namespace) -> Path:
    """The file to write; for a part its own, such as `emb-00000-of-00004.npy`.

    Raises:
      UserError: when it cannot be written there, or would take the place of an input.
    """
    name = args.output
    if args.parts > 1:
        path = Path(name)
        name = str(path.with_name(f"{path.stem}-{args.part:05}-of-{args.parts:05}{path.suffix}"))
    from simcse_jax.data.files import as_inputs

    inputs = as_inputs("--data", args.data) | {"--model": args.model}
    inputs |= {"--ranges": args.ranges_file, "--calibration": args.calibration}
    temporary = (*RESUMED, BESIDE) if args.output_dtype in SMALL else RESUMED
    return output_file(name, inputs, kinds=KINDS, temporary=temporary, streamed=False)


def encode_file(
    args: argparse.Namespace, sentences: "SentenceFiles", output: Path, first: int, end: int, fingerprint: str
) -> None:
    """Encodes the rows from `first` up to, but without, `end` that are not done yet, and writes the output."""
    from simcse_jax.bulk.embeddings.encoder import RowEncoder
    from simcse_jax.bulk.resumable import PartialEmbeddings
    from simcse_jax.host.progress import Progress
    from simcse_jax.vectors.quantization import Clipped, Quantization, dtype_of

    encoder = RowEncoder(options_of(args))
    about = {"--data": fingerprint, **encoder.about(), "--save-every": args.save_every}
    embeddings = PartialEmbeddings(output, end - first, dtype_of(args.output_dtype), about)
    if embeddings.done:
        print(f"{output}: resuming after row {embeddings.done:,} of {end - first:,}", flush=True)
    if embeddings.done and embeddings.quantization:
        small: Quantization | None = Quantization.from_content(embeddings.quantization, str(embeddings.state))
    else:
        small = encoder.quantization(sentences.read())
    embeddings.quantization = None if small is None else small.content()
    left, clipped = itertools.islice(sentences.read(first + embeddings.done), end - first - embeddings.done), Clipped()
    with Progress(end - first, done=embeddings.done) as bar:
        while part := list(itertools.islice(left, min(args.save_every, end - first))):
            encoded = encoder.encode(part, bar.advance)
            rows = encoded.embeddings if small is None else small.encode(encoded.embeddings, clipped)
            embeddings.append(rows, encoded.cut)
    if embeddings.done != end - first or sentences.has_changed():
        raise UserError(f"{sentences.path}: changed while it was read; start again")
    maker = encoder.maker()
    embeddings.finish(itertools.islice(sentences.read(first), end - first), first, maker)
    print(f"{output}: {end - first:,} embeddings of {encoder.dimension} elements, {args.output_dtype}")
    report_cut(embeddings.cut, sentences.path, encoder.max_length)
    with warnings_in_a_line():
        clipped.warn(stacklevel=1)
    say_build(args, maker)


def encode_tokens(args: argparse.Namespace, sentences: "SentenceFiles", output: Path, rows: int) -> None:
    """Writes the embeddings of the tokens of all rows, whole or not at all; after a kill, they are made again."""
    import pyarrow.parquet

    from simcse_jax.bulk.embeddings.blocks import schema_of_tokens, write_tokens
    from simcse_jax.bulk.embeddings.encoder import RowEncoder
    from simcse_jax.errors import why
    from simcse_jax.host.progress import Progress
    from simcse_jax.host.storage import replacing_file

    encoder = RowEncoder(options_of(args))
    schema = schema_of_tokens(encoder.dimension, np.dtype(args.output_dtype), texts=True)
    try:
        with replacing_file(output) as file, Progress(rows) as bar:
            with pyarrow.parquet.ParquetWriter(file, schema) as writer:
                done, cut = write_tokens(writer, encoder, sentences.read(), 0, bar.advance)
            if done != rows or sentences.has_changed():
                raise UserError(f"{sentences.path}: changed while it was read; start again")
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {why(error)}") from None
    print(f"{output}: the tokens of {rows:,} sentences, {encoder.dimension} elements each, {args.output_dtype}")
    report_cut(cut, sentences.path, encoder.max_length)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options, after all checks that need no file."""
    parser = Parser(
        "encode",
        description="Encodes the sentences of a file, or of many into a folder. Needs a model and the files. Writes "
        "the embeddings to --output; until they are complete, .OUTPUT.partial and .OUTPUT.state.json, or some of the "
        "folder's files, from which the same command resumes.",
    )
    parser.add_argument("--model", required=True, help=MODEL)
    parser.add_argument(
        "--data",
        required=True,
        help="a .txt (a sentence a line), .csv, .tsv, .jsonl or .parquet file, a folder of them, or a pattern; into "
        "a folder also several with commas; on a disk or in a bucket",
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
    add_pooler(parser, without="--tokens")
    parser.add_argument("--num-layers", type=int, default=0, help="keep the first n layers (default: all)")
    parser.add_argument("--max-length", type=int, help="the most tokens of a sentence (default: the model's own)")
    add_batch_size(parser)
    add_dtype(parser)
    add_prompts(parser, without="--tokens")
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
    ranged = " or ".join(f"--output-dtype {name}" for name in WITH_RANGES)
    parser.add_argument(
        "--ranges",
        only=ranged,
        without="--calibration",
        help="for int8 and uint8: an earlier output whose ranges to use, or a .npy (2, elements): the smallest and the "
        "largest value of each element (default: those of the first 16,384 rows)",
    )
    parser.add_argument(
        "--calibration",
        only=ranged,
        help="for int8 and uint8: embeddings, as this command writes them, whose ranges to use",
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="into a folder: this process, next to others with the same command, or the hosts of a Ray cluster",
    )
    parser.add_argument(
        "--address", only="--engine ray", help="of the Ray cluster, or auto (default: one is started on this machine)"
    )
    parser.add_argument(
        "--hosts",
        type=int,
        least=1,
        only="--engine ray",
        help="of the Ray cluster, an actor on each (default: all)",
    )
    parser.add_argument("--block-rows", type=int, least=1, help="rows of a file in the folder (default: 131072)")
    parser.add_argument("--keep-text", action="store_true", help="write the sentences into the folder too")
    parser.add_argument(
        "--tokens",
        action="store_true",
        help="the embeddings of tokens: for each sentence a list, into a .parquet or a folder",
    )
    saved = f"rows that a kill can lose at most (default: {SAVE_EVERY})"
    parser.add_argument("--save-every", type=int, least=1, without="--tokens", help=saved)
    divided = "parts that the rows are divided into, a file each"
    parser.add_argument("--parts", type=int, default=1, least=1, without="--tokens", help=divided)
    parser.add_argument("--part", type=int, help="the one to encode, from 0; other commands encode the others")
    args = parser.parse_args(argv)
    named = args.output.endswith("/") or is_remote(args.output)
    is_folder = not args.output.lower().endswith(KINDS) and local_path(args.output).is_dir()
    args.folder = bool(args.output) and (named or is_folder)
    check_options_of_folders(args)
    if args.tokens:
        check_options_of_tokens(args)
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


def check_options_of_tokens(args: argparse.Namespace) -> None:
    """Refuses options that have no effect on the embeddings of tokens, and files that cannot have them.

    Raises:
      UserError: naming one.
    """
    given = {"--part": args.part, "--normalize": args.normalize or None}
    given |= {"--no-normalize": args.normalize is False or None}
    given |= {f"--output-dtype {args.output_dtype}": True if args.output_dtype in SMALL else None}
    for name, value in given.items():
        if value is not None:
            raise UserError(f"{name}: is for sentences; leave it out with --tokens")
    if not args.folder and args.output.lower().endswith(".npy"):
        raise UserError(f"--tokens: writes .parquet, or a folder; {args.output} has rows of one length")
