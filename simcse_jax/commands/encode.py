"""simcse-jax encode --model M --data corpus.txt --output emb.npy: the sentences of files as embeddings.

For a file, the input is read once before a model is loaded, so that a mistake in it is reported immediately. It is then
encoded some thousand rows at a time, so memory does not grow with it. A folder gets a file for each block of rows; any
number of processes, or the hosts of a Ray cluster, make them. The same command, given again, resumes after a kill.
"""

import contextlib
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from cyclopts import Parameter
from cyclopts.validators import Number

from simcse_jax.commands.command_line import say_next
from simcse_jax.commands.verbs import (
    WITH_NO,
    BatchSize,
    Count,
    Dtype,
    ModelName,
    NumLayers,
    Pooler,
    Prompt,
    PromptName,
    TruncateDim,
    verb,
)
from simcse_jax.errors import UserError
from simcse_jax.host.hidden import COUNTED, DOT, MANIFEST, PLAN, RANGES
from simcse_jax.host.outputs import output_file, output_folder
from simcse_jax.host.storage import Folder, is_remote, local_path

if TYPE_CHECKING:
    from simcse_jax.bulk.embeddings.encoder import EncodingOptions
    from simcse_jax.data.sentences import SentenceFiles
    from simcse_jax.vectors.quantization import Ranges

WITH_RANGES = ("int8", "uint8")
SMALL = (*WITH_RANGES, "binary", "ubinary")
KINDS = (".npy", ".parquet")


@verb
def encode(
    model: ModelName,
    data: str,
    output: str,
    *,
    column: str | None = None,
    pooler: Pooler = None,
    num_layers: NumLayers = 0,
    max_length: Count | None = None,
    batch_size: BatchSize = 64,
    dtype: Dtype = "float32",
    prompt: Prompt = None,
    prompt_name: PromptName = None,
    truncate_dim: TruncateDim = None,
    normalize: Annotated[bool | None, WITH_NO] = None,
    output_dtype: Literal["float32", "float16", "int8", "uint8", "binary", "ubinary"] = "float32",
    ranges: str | None = None,
    calibration: str | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    hosts: Count | None = None,
    block_rows: Count = 131072,
    keep_text: bool = False,
    tokens: bool = False,
    save_every: Count = 32768,
    parts: Count = 1,
    part: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
) -> None:
    """Writes the embeddings of a file, or of many; the same call resumes.

    Needs a model and the files. Until the output is complete there are .OUTPUT.partial and .OUTPUT.state.json, or some
    of the folder's files, from which the same command resumes. `SimCSE.encode` returns the embeddings of a list.

    Args:
      data: A .txt (a sentence a line), .csv, .tsv, .jsonl or .parquet file, a folder of them, or a pattern; into a
        folder also several with commas; on a disk or in a bucket.
      output: A .npy, a .parquet with columns sentence, row, embedding, or a folder for .parquet files: one that exists,
        FOLDER/ or gs://…
      column: The column of the sentences. By default sentence, text, sent0 or anchor, or the only one.
      max_length: The most tokens of a sentence. By default the model's own.
      normalize: Scale to unit length, or keep the encoder's lengths. By default as the model says.
      output_dtype: Of the output: numbers, a byte an element (int8, uint8), or a bit (binary, ubinary: packed).
      ranges: For int8 and uint8: an earlier output whose ranges to use, or a .npy (2, elements): the smallest and the
        largest value of each element. By default those of the first 16,384 rows.
      calibration: For int8 and uint8: embeddings, as this command writes them, whose ranges to use.
      engine: Into a folder: this process, next to others with the same command, or the hosts of a Ray cluster.
      address: Of the Ray cluster, or auto. By default one is started on this machine.
      hosts: Of the Ray cluster, a worker on each. By default all.
      block_rows: Rows of a file in the folder.
      keep_text: Write the sentences into the folder too.
      tokens: The embeddings of tokens: for each sentence a list, into a .parquet or a folder.
      save_every: Rows that a kill can lose at most; in a folder it loses the blocks that are being made.
      parts: Parts that the rows are divided into, a file each; a folder needs none.
      part: The one to encode, from 0; other commands encode the others.

    Raises:
      UserError: for any mistake in the options, the data or the model.
    """
    from simcse_jax.bulk.embeddings.encoder import EncodingOptions

    named = output.endswith("/") or is_remote(output)
    into_folder = bool(output) and (named or (not output.lower().endswith(KINDS) and local_path(output).is_dir()))
    if is_remote(output) and output.lower().endswith(KINDS):
        raise UserError(f"--output {output}: a single file is written to a disk; name a folder: {output}/")
    if engine == "ray" and not into_folder:
        raise UserError(f"--engine ray: {output} is a file; name a folder: --output FOLDER/")
    if tokens and (normalize is not None or truncate_dim is not None or output_dtype in SMALL or parts > 1):
        raise UserError("--tokens: goes with neither --normalize, --truncate-dim, bytes or bits, nor --parts")
    if tokens and not into_folder and output.lower().endswith(".npy"):
        raise UserError(f"--tokens: writes .parquet, or a folder; {output} has rows of one length")
    options = EncodingOptions(
        model=model,
        pooler=pooler,
        num_layers=num_layers,
        max_length=max_length,
        batch_size=batch_size,
        dtype=dtype,
        truncate_dim=truncate_dim,
        prompt=prompt,
        prompt_name=prompt_name,
        normalize=normalize,
        output_dtype=output_dtype,
        tokens=tokens,
        ranges=_read_ranges(ranges, calibration) if output_dtype in WITH_RANGES else None,
    )
    if into_folder:
        encode_into_folder(data, output, column, options, block_rows, keep_text, engine, address, hosts)
        return
    if parts > 1 and output_dtype in WITH_RANGES and options.ranges is None:
        raise UserError(f"--parts: all need the same ranges of {output_dtype}; give --ranges or --calibration")
    if (part is None and parts > 1) or (part or 0) >= parts:
        raise UserError(f"--part: must be the one to encode, from 0 to {parts - 1}, below --parts")
    part = part or 0
    from simcse_jax.data.files import as_inputs
    from simcse_jax.data.sentences import SentenceFiles
    from simcse_jax.host.locks import held_next_to

    name = Path(output)
    if parts > 1:
        name = name.with_name(f"{name.stem}-{part:05}-of-{parts:05}{name.suffix}")
    inputs = {**as_inputs("--data", data), "--model": model, "--ranges": ranges, "--calibration": calibration}
    path = output_file(str(name), inputs, kinds=KINDS, streamed=False)
    sentences = SentenceFiles(data, column)
    rows, fingerprint = sentences.scan()
    if rows < parts:
        raise UserError(f"--parts {parts}: {data} has only {rows} rows")
    first, end = (rows * number // parts for number in (part, part + 1))
    with held_next_to(path):
        if tokens:
            encode_tokens(sentences, path, rows, options)
            return
        maker = encode_file(sentences, path, first, end, fingerprint, options, save_every)
    if parts == 1:
        say_build(output, options, maker)


def _read_ranges(ranges: str | None, calibration: str | None) -> "Ranges | None":
    """The ranges of `--ranges`, or of the embeddings of `--calibration`; None: neither is given."""
    if ranges is not None:
        from simcse_jax.vectors.quantization import read_ranges

        return read_ranges(ranges)
    if calibration is None:
        return None
    from simcse_jax.index.embedding_files import EmbeddingFiles
    from simcse_jax.vectors.quantization import merge_ranges, ranges_of

    return merge_ranges(ranges_of(batch.embeddings) for batch in EmbeddingFiles(calibration).batches())


def encode_into_folder(
    data: str,
    output: str,
    column: str | None,
    options: "EncodingOptions",
    block_rows: int,
    keep_text: bool,
    engine: str,
    address: str | None,
    hosts: int | None,
) -> None:
    """Makes the blocks of the folder that are missing."""
    from simcse_jax.bulk.embeddings.blocks import encode_here
    from simcse_jax.bulk.embeddings.embeddings_folder import make_plan
    from simcse_jax.bulk.embeddings.encoder import RowEncoder
    from simcse_jax.bulk.embeddings.on_ray import connected, encode_on_ray
    from simcse_jax.bulk.embeddings.shared_folder import enter, leave
    from simcse_jax.data.examples import expand

    sources = expand([data], "--data")
    folder = output_of_folder(output, options.model, sources)
    with contextlib.ExitStack() as job:
        if engine == "ray":
            job.enter_context(connected(address))
            import jax

            jax.config.update("jax_platforms", "cpu")  # accelerators are the actors'
        encoder = RowEncoder(options)
        plan = make_plan(sources, column, encoder.about(), block_rows, keep_text)
        enter(folder, plan)
        try:
            if engine == "ray":
                manifest = encode_on_ray(folder, plan, options, hosts)
            else:
                manifest = encode_here(folder, plan, encoder)
        except UserError:
            leave(folder)
            raise
    files = f"{len(manifest.files)} file{'s' * (len(manifest.files) > 1)}"
    kind = "the tokens of {:,} sentences, {} elements each, {}"
    if not options.tokens:
        kind = "{:,} embeddings of {} elements, {}"
    print(f"{output}: {kind.format(manifest.rows, manifest.dimension, options.output_dtype)}, in {files}")
    report_cut(manifest.cut, data, plan.key["--max-length"])
    say_build(output, options, encoder.maker())


def output_of_folder(output: str, model: str, sources: Sequence[str]) -> Folder:
    """The folder to write to, which need not exist; refused if it cannot be written to, or has an input."""
    from simcse_jax.bulk.embeddings.shared_folder import check_own
    from simcse_jax.data.corpus.manifest import corpus_path

    folder = corpus_path(output)
    if not is_remote(folder):
        written = [f"{DOT}{name}" for name in (PLAN, COUNTED, RANGES, MANIFEST)]
        output_folder(output, {"--model": model}, files=["embeddings-*", *written])
    for name in sources:  # which are too many for a comparison with each file of the folder
        place = name.rpartition("/")[0] if is_remote(name) else os.path.dirname(os.path.realpath(local_path(name)))
        if place == (str(folder) if is_remote(name) else os.path.realpath(folder)):
            raise UserError(f"--output {output}: is the folder of --data {name}; choose another")
    if folder.is_dir():
        check_own(folder)
    return folder


def say_build(output: str, options: "EncodingOptions", maker: dict[str, Any] | None) -> None:
    """Prints the command that builds an index of the output, if one can; `maker` is the model of the output."""
    if maker is None or options.tokens or options.output_dtype in SMALL:
        return
    model: list[str] = []
    output = output.rstrip("/")
    if output.endswith(".npy"):  # other files name the model themselves
        if options.num_layers or options.prompt is not None or options.prompt_name is not None:
            return  # which `search build` cannot be given
        options_of_model = {
            "--model": options.model,
            "--pooler": options.pooler,
            "--truncate-dim": options.truncate_dim,
        }
        options_of_model |= {"--dtype": options.dtype} if options.dtype != "float32" else {}
        model = [text for option, value in options_of_model.items() if value for text in (option, str(value))]
    name = f"{output.removesuffix('.npy').removesuffix('.parquet')}.lance"
    say_next("search", "build", "--embeddings", output, "--output", name, *model)


def report_cut(cut: int, name: object, max_length: int) -> None:
    """Says how many sentences were cut."""
    if cut:
        count = "1 sentence was" if cut == 1 else f"{cut:,} sentences were"
        print(f"{name}: {count} longer than {max_length} tokens and cut there", file=sys.stderr)


def encode_file(
    sentences: "SentenceFiles",
    output: Path,
    first: int,
    end: int,
    fingerprint: str,
    options: "EncodingOptions",
    save_every: int,
) -> dict[str, Any] | None:
    """Encodes the rows from `first` up to, but without, `end` that are not done yet, and writes the output.

    Returns:
      The model's identity for an index; None where there can be none.
    """
    from simcse_jax.bulk.embeddings.encoder import RowEncoder
    from simcse_jax.bulk.resumable import PartialEmbeddings
    from simcse_jax.host.progress import Progress
    from simcse_jax.vectors.quantization import Quantization, dtype_of

    encoder = RowEncoder(options)
    about = {"--data": fingerprint, **encoder.about(), "--save-every": save_every}
    embeddings = PartialEmbeddings(output, end - first, dtype_of(options.output_dtype), about)
    if embeddings.done:
        print(f"{output}: resuming after row {embeddings.done:,} of {end - first:,}", flush=True)
    if embeddings.done and embeddings.quantization:
        small: Quantization | None = Quantization.from_content(embeddings.quantization, str(embeddings.state))
    else:
        small = encoder.quantization(sentences.read())
    embeddings.quantization = None if small is None else small.content()
    rest = itertools.islice(sentences.read(first + embeddings.done), end - first - embeddings.done)
    with Progress(end - first, done=embeddings.done) as bar:
        while part := list(itertools.islice(rest, min(save_every, end - first))):
            encoded = encoder.encode(part, bar.advance)
            rows = encoded.embeddings if small is None else small.encode(encoded.embeddings)
            embeddings.append(rows, encoded.cut)
    if embeddings.done != end - first or sentences.has_changed():
        raise UserError(f"{sentences.path}: changed while it was read; start again")
    maker = encoder.maker()
    embeddings.finish(itertools.islice(sentences.read(first), end - first), first, maker)
    print(f"{output}: {end - first:,} embeddings of {encoder.dimension} elements, {options.output_dtype}")
    report_cut(embeddings.cut, sentences.path, encoder.max_length)
    return maker


def encode_tokens(sentences: "SentenceFiles", output: Path, rows: int, options: "EncodingOptions") -> None:
    """Writes the embeddings of the tokens of all rows, whole or not at all; after a kill, they are made again."""
    import pyarrow.parquet

    from simcse_jax.bulk.embeddings.blocks import schema_of_tokens, write_tokens
    from simcse_jax.bulk.embeddings.encoder import RowEncoder
    from simcse_jax.errors import system_message
    from simcse_jax.host.progress import Progress
    from simcse_jax.host.storage import replacing_file

    encoder = RowEncoder(options)
    schema = schema_of_tokens(encoder.dimension, np.dtype(options.output_dtype), texts=True)
    try:
        with replacing_file(output) as file, Progress(rows) as bar:
            with pyarrow.parquet.ParquetWriter(file, schema) as writer:
                done, cut = write_tokens(writer, encoder, sentences.read(), 0, bar.advance)
            if done != rows or sentences.has_changed():
                raise UserError(f"{sentences.path}: changed while it was read; start again")
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {system_message(error)}") from None
    print(f"{output}: the tokens of {rows:,} sentences, {encoder.dimension} elements each, {options.output_dtype}")
    report_cut(cut, sentences.path, encoder.max_length)
