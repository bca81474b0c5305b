"""simcse-jax encode --model M --input corpus.txt --output emb.npy: the sentences of files as embeddings.

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
from typing import TYPE_CHECKING

import numpy as np

from simcse_jax.commands.command_line import run_command, warnings_in_a_line
from simcse_jax.commands.encode_arguments import KINDS, SMALL, parse
from simcse_jax.errors import UserError
from simcse_jax.host.hidden import COUNTED, DOT, MANIFEST, PLAN, RANGES
from simcse_jax.host.outputs import RESUMED, output_file, output_folder
from simcse_jax.host.storage import Folder, is_remote, local_path

if TYPE_CHECKING:
    from simcse_jax.bulk.embeddings.encoder import Options
    from simcse_jax.data.sentences import SentenceFile
    from simcse_jax.encoding.quantization import Ranges

BESIDE = f"{{}}.{RANGES}"  # a file next to a .npy of bytes or bits


def main() -> None:
    """The command."""
    args = parse()
    args.ranges_file, args.ranges = args.ranges, given_ranges(args)
    if args.folder:
        encode_into_folder(args)
        return
    output = check_output(args)
    from simcse_jax.data.sentences import SentenceFile
    from simcse_jax.host.locks.lock import held_next_to

    sentences = SentenceFile(args.input, args.column)
    rows, fingerprint = sentences.scan()
    if rows < args.parts:
        raise UserError(f"--parts {args.parts}: {args.input} has only {rows} rows")
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
        from simcse_jax.encoding.calibration import read_ranges

        return read_ranges(args.ranges)
    if args.calibration is None:
        return None
    from simcse_jax.encoding.quantization import merged, ranges_of
    from simcse_jax.index.embedding_files import EmbeddingFiles

    return merged(ranges_of(batch.embeddings) for batch in EmbeddingFiles(args.calibration).batches())


def encode_into_folder(args: argparse.Namespace) -> None:
    """Makes the blocks of the folder that are missing."""
    from simcse_jax.bulk.embeddings.blocks import encode_here
    from simcse_jax.bulk.embeddings.embeddings_folder import BLOCK_ROWS, make_plan
    from simcse_jax.bulk.embeddings.encoder import Encoder
    from simcse_jax.bulk.embeddings.on_ray import connected, encode_on_ray
    from simcse_jax.data.corpus.plan import expand
    from simcse_jax.data.corpus.shared_folder import enter, leave

    sources = expand([args.input], "--input")
    folder = output_of_folder(args, sources)
    options = options_of(args)
    with contextlib.ExitStack() as job:
        if args.engine == "ray":
            job.enter_context(connected(args.address))
            import jax

            jax.config.update("jax_platforms", "cpu")  # accelerators are the actors'
        encoder = Encoder(options)
        plan = make_plan(sources, args.column, encoder.about(), args.block_rows or BLOCK_ROWS, args.keep_text)
        plan = enter(folder, plan, "that of other embeddings")
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
    report_cut(manifest.cut, args.input, plan.key["--max-length"])


def output_of_folder(args: argparse.Namespace, sources: Sequence[str]) -> Folder:
    """The folder to write to, which need not exist.

    Raises:
      UserError: when it cannot be written to, or has an input.
    """
    from simcse_jax.data.corpus.manifest import corpus_path
    from simcse_jax.data.corpus.shared_folder import check_own

    folder = corpus_path(args.output)
    if not is_remote(folder):
        own = [f"{dot}{name}" for name in (PLAN, COUNTED, RANGES, MANIFEST) for dot in (DOT, "")]
        output_folder(args.output, {"--model": args.model}, files=["embeddings-*", *own])
    for name in sources:  # which are too many for a comparison with each file of the folder
        same = name.rpartition("/")[0] == str(folder) if is_remote(name) else _is_in(local_path(name), folder)
        if same:
            raise UserError(f"--output {args.output}: is the folder of --input {name}; choose another")
    if folder.is_dir():
        check_own(folder)
    return folder


def _is_in(file: Path, folder: Folder) -> bool:
    """Whether a file, or what a link points to, lies in a folder."""
    return os.path.dirname(os.path.realpath(file)) == os.path.realpath(folder)


def options_of(args: argparse.Namespace) -> "Options":
    """How sentences are encoded."""
    from simcse_jax.bulk.embeddings.encoder import Options

    return Options(**{field: getattr(args, field) for field in Options.__dataclass_fields__})


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
    inputs = {"--input": args.input, "--model": args.model}
    inputs |= {"--ranges": args.ranges_file, "--calibration": args.calibration}
    temporary = (*RESUMED, BESIDE) if args.output_dtype in SMALL else RESUMED
    return output_file(name, inputs, kinds=KINDS, temporary=temporary, streamed=False)


def encode_file(
    args: argparse.Namespace, sentences: "SentenceFile", output: Path, first: int, end: int, fingerprint: str
) -> None:
    """Encodes the rows from `first` up to, but without, `end` that are not done yet, and writes the output."""
    from simcse_jax.bulk.embeddings.encoder import Encoder
    from simcse_jax.bulk.resumable import PartialEmbeddings
    from simcse_jax.encoding.quantization import Clipped, Quantization, dtype_of
    from simcse_jax.host.progress import Progress

    encoder = Encoder(options_of(args))
    about = {"--input": fingerprint, **encoder.about(), "--save-every": args.save_every}
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
    embeddings.finish(itertools.islice(sentences.read(first), end - first), first, encoder.maker())
    print(f"{output}: {end - first:,} embeddings of {encoder.dimension} elements, {args.output_dtype}")
    report_cut(embeddings.cut, sentences.path, encoder.max_length)
    with warnings_in_a_line():
        clipped.warn(stacklevel=1)


def encode_tokens(args: argparse.Namespace, sentences: "SentenceFile", output: Path, rows: int) -> None:
    """Writes the embeddings of the tokens of all rows, whole or not at all; after a kill, they are made again."""
    import pyarrow.parquet

    from simcse_jax.bulk.embeddings.blocks import schema_of_tokens, write_tokens
    from simcse_jax.bulk.embeddings.encoder import Encoder
    from simcse_jax.errors import why
    from simcse_jax.host.progress import Progress
    from simcse_jax.host.storage import replacing_file

    encoder = Encoder(options_of(args))
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


if __name__ == "__main__":
    run_command(main)
