"""python -m simcse_jax.encode --model M --input corpus.txt --output emb.npy: a file's sentences as embeddings.

The input is read once before a model is loaded, so that a mistake in it is told at once, and is then encoded some
thousand rows at a time: memory does not grow with it. The same command, given again, goes on where a kill has left it.
"""

import argparse
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from simcse_jax.command_line import Parser, add_compute_dtype, run_command
from simcse_jax.errors import UserError
from simcse_jax.models.config import POOLERS
from simcse_jax.storage import local_path

if TYPE_CHECKING:
    from simcse_jax.data.sentences import SentenceFile


def main() -> None:
    """The command."""
    args = parse()
    output = check_output(args)
    from simcse_jax.data.sentences import SentenceFile

    sentences = SentenceFile(args.input, args.column)
    if output.exists() and sentences.path.samefile(output):
        raise UserError(f"--output {args.output}: is the input")
    rows, fingerprint = sentences.scan()
    if rows < args.processes:
        raise UserError(f"--processes {args.processes}: {args.input} has only {rows} rows")
    first, end = (rows * process // args.processes for process in (args.process_id, args.process_id + 1))
    encode_file(args, sentences, output, first, end, fingerprint)


def parse() -> argparse.Namespace:
    """The options, checked as far as that needs no file."""
    parser = Parser(
        prog="simcse_jax.encode",
        description="Encodes a file of sentences. Needs a model. Writes --output, and until it is done what a second "
        "call resumes from.",
    )
    parser.add_argument("--model", required=True, help="a folder, a hub id, package:NAME, or a workdir")
    parser.add_argument(
        "--input", required=True, help="a .txt (a sentence a line), .csv, .tsv, .jsonl or .parquet file"
    )
    parser.add_argument("--output", required=True, help="a .npy, or a .parquet with columns sentence, row, embedding")
    parser.add_argument("--column", help="of the sentences (default: sentence, text, sent0 or anchor, or the only one)")
    parser.add_argument("--pooler", choices=POOLERS, help="from tokens to an embedding (default: the model's own)")
    parser.add_argument("--num-layers", type=int, default=0, help="keep the first n layers (default: all)")
    parser.add_argument("--max-length", type=int, help="in tokens (default: the model's own)")
    parser.add_argument("--batch-size", type=int, default=64, help="sentences encoded together on each device")
    add_compute_dtype(parser)
    normalize = parser.add_mutually_exclusive_group()
    normalize.add_argument(
        "--normalize", action="store_true", default=None, help="to unit length (default: as the model)"
    )
    normalize.add_argument(
        "--no-normalize", action="store_false", dest="normalize", default=None, help="as the encoder gives them"
    )
    parser.add_argument("--dtype", choices=("float32", "float16"), default="float32", help="of the output's numbers")
    parser.add_argument("--save-every", type=int, default=32768, help="rows: what a kill loses at most")
    parser.add_argument("--processes", type=int, default=1, help="share the rows among so many processes, a file each")
    parser.add_argument("--process-id", type=int, help="which of them this is, from 0")
    args = parser.parse_args()
    for option in ("batch_size", "save_every", "processes"):
        if getattr(args, option) < 1:
            raise UserError(f"--{option.replace('_', '-')} {getattr(args, option)}: must be 1 or more")
    if args.process_id is None:
        if args.processes > 1:
            raise UserError("--processes: give --process-id too, which of them this is, from 0")
        args.process_id = 0
    if not 0 <= args.process_id < args.processes:
        raise UserError(f"--process-id {args.process_id}: must be from 0 to {args.processes - 1}, for --processes")
    return args


def check_output(args: argparse.Namespace) -> Path:
    """The file that this process writes: of several, each its own, `emb-00000-of-00004.npy`.

    Raises:
      UserError: when it cannot be one.
    """
    output = local_path(args.output)
    if output.is_dir():
        raise UserError(f"--output {args.output}: a folder; name a .npy or .parquet file in it")
    if output.suffix.lower() not in (".npy", ".parquet"):
        raise UserError(f"--output {args.output}: must end in .npy or .parquet")
    if not output.absolute().parent.is_dir():
        raise UserError(f"--output {args.output}: there is no folder {output.parent}")
    if args.processes > 1:
        output = output.with_name(f"{output.stem}-{args.process_id:05}-of-{args.processes:05}{output.suffix}")
    return output


def encode_file(
    args: argparse.Namespace, sentences: "SentenceFile", output: Path, first: int, end: int, fingerprint: str
) -> None:
    """Encodes the rows from `first` to `end` (not with it), as far as that is not done, and writes the output."""
    from tqdm import tqdm

    from simcse_jax.encoding.files import PartialEmbeddings
    from simcse_jax.simcse import SimCSE

    model = SimCSE(
        args.model,
        pooler=args.pooler,
        num_layers=args.num_layers,
        batch_size=args.batch_size,
        dtype=args.compute_dtype,
    )
    max_length = model.max_length if args.max_length is None else args.max_length
    about = {
        "--input": fingerprint,
        "--model": model.identity().sha256,
        "--pooler": f"{model.pooler}{' with head' if model.use_head else ''}",
        "--max-length": max_length,
        "--normalize": model.normalize if args.normalize is None else args.normalize,
        "--compute-dtype": args.compute_dtype,
        "--dtype": args.dtype,
        "--batch-size": args.batch_size,
        "--save-every": args.save_every,
    }
    embeddings = PartialEmbeddings(output, end - first, args.dtype, about)
    if embeddings.done:
        print(f"{output}: going on behind row {embeddings.done:,} of {end - first:,}", flush=True)
    left = itertools.islice(iter(sentences), first + embeddings.done, end)
    with tqdm(total=end - first, initial=embeddings.done, unit=" sentences", disable=None) as bar:  # on a terminal
        while part := list(itertools.islice(left, args.save_every)):
            encoded = model.encode_counted(part, max_length=max_length, normalize_to_unit=args.normalize)
            embeddings.append(encoded.embeddings, encoded.cut)
            bar.update(len(part))
    if embeddings.done != end - first or sentences.has_changed():
        raise UserError(f"{sentences.path}: has changed while it was read; start again")
    embeddings.finish(itertools.islice(iter(sentences), first, end), first)
    print(f"{output}: {end - first:,} embeddings of {model.config.hidden_size} elements, {args.dtype}")
    if embeddings.cut:
        count = "1 sentence was" if embeddings.cut == 1 else f"{embeddings.cut:,} sentences were"
        print(f"{sentences.path}: {count} longer than {max_length} tokens and cut there", file=sys.stderr)


if __name__ == "__main__":
    run_command(main)
