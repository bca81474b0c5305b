"""python -m simcse_jax.encode --model M --input corpus.txt --output emb.npy: a file's sentences as embeddings.

The input is read once before a model is loaded, so that a mistake in it is reported immediately. It is then encoded
some thousand rows at a time, so memory does not grow with it. The same command, given again, resumes after a kill.
"""

import argparse
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simcse_jax.command_line import MODEL, Parser, add_dtype, add_prompts, run_command, with_new_spellings
from simcse_jax.errors import UserError
from simcse_jax.models.config import POOLERS
from simcse_jax.outputs import output_file
from simcse_jax.storage import local_path

if TYPE_CHECKING:
    from simcse_jax.data.sentences import SentenceFile

# New names of options, by their earlier names.
RENAMED = {
    "--compute-dtype": "--dtype",
    "--dtype": "--output-dtype",
    "--processes": "--parts",
    "--process-id": "--part",
}
TEMPORARY = (".tmp", ".partial", ".state.json", ".state.json.tmp")  # endings of the output until it is complete


def main() -> None:
    """The command."""
    args = parse()
    output = check_output(args)
    from simcse_jax.data.sentences import SentenceFile
    from simcse_jax.locks.lock import held_next_to

    sentences = SentenceFile(args.input, args.column)
    rows, fingerprint = sentences.scan()
    if rows < args.parts:
        raise UserError(f"--parts {args.parts}: {args.input} has only {rows} rows")
    first, end = (rows * part // args.parts for part in (args.part, args.part + 1))
    with held_next_to(output):
        encode_file(args, sentences, output, first, end, fingerprint)


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
        prog="simcse_jax.encode",
        description="Encodes the sentences of a file. Needs a model and the file. Writes the embeddings to --output; "
        "until they are complete, OUTPUT.partial and OUTPUT.state.json, from which the same command resumes.",
    )
    parser.add_argument("--model", required=True, help=MODEL)
    parser.add_argument(
        "--input", required=True, help="a .txt (a sentence a line), .csv, .tsv, .jsonl or .parquet file"
    )
    parser.add_argument("--output", required=True, help="a .npy, or a .parquet with columns sentence, row, embedding")
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
        "--output-dtype", choices=("float32", "float16"), default="float32", help="the type of the output"
    )
    parser.add_argument("--save-every", type=int, default=32768, help="rows that a kill can lose at most")
    parser.add_argument("--parts", type=int, default=1, help="parts that the rows are divided into, a file each")
    parser.add_argument("--part", type=int, help="the one to encode, from 0; other commands encode the others")
    arguments = parser.spelled_out(sys.argv[1:], RENAMED)
    args = parser.parse_args(with_new_spellings(arguments, renamed(arguments)))
    for option in ("batch_size", "save_every", "parts"):
        if getattr(args, option) < 1:
            raise UserError(f"--{option.replace('_', '-')} {getattr(args, option)}: must be 1 or more")
        if getattr(args, option) >= 2**31:
            raise UserError(f"--{option.replace('_', '-')} {str(getattr(args, option))[:40]}: must be below 2³¹")
    if args.part is None:
        if args.parts > 1:
            raise UserError("--parts: give --part too, the one to encode, from 0")
        args.part = 0
    if not 0 <= args.part < args.parts:
        raise UserError(f"--part {args.part}: must be from 0 to {args.parts - 1}, below --parts")
    return args


def check_output(args: argparse.Namespace) -> Path:
    """The file to write; for a part its own, such as `emb-00000-of-00004.npy`.

    Raises:
      UserError: when it cannot be written there, or would take the place of an input.
    """
    name = args.output
    if args.parts > 1 and not local_path(name).is_dir():
        path = Path(name)
        name = str(path.with_name(f"{path.stem}-{args.part:05}-of-{args.parts:05}{path.suffix}"))
    inputs = {"--input": args.input, "--model": args.model}
    return output_file(name, inputs, kinds=(".npy", ".parquet"), temporary=TEMPORARY, streamed=False)


def encode_file(
    args: argparse.Namespace, sentences: "SentenceFile", output: Path, first: int, end: int, fingerprint: str
) -> None:
    """Encodes the rows from `first` up to, but without, `end` that are not done yet, and writes the output."""
    from simcse_jax.encoding.files import PartialEmbeddings
    from simcse_jax.progress import Progress
    from simcse_jax.simcse import SimCSE

    model = SimCSE(
        args.model,
        pooler=args.pooler,
        num_layers=args.num_layers,
        batch_size=args.batch_size,
        dtype=args.dtype,
        truncate_dim=args.truncate_dim,
    )
    prompt = {"prompt": args.prompt, "prompt_name": args.prompt_name}
    normalize = model.normalize if args.normalize is None else args.normalize
    if normalize and args.normalize is None and model.truncate_dim:
        normalize = "before --truncate-dim"
    max_length = model.max_length if args.max_length is None else args.max_length
    about = {
        "--input": fingerprint,
        "--truncate-dim": model.truncate_dim,
        "--prompt": model.prompt_of(**prompt) or None,
        "--model": model.identity().sha256,
        "--pooler": f"{model.pooler}{' with head' if model.use_head else ''}",
        "--max-length": max_length,
        "--normalize": normalize,
        "--dtype": args.dtype,
        "--output-dtype": args.output_dtype,
        "--batch-size": args.batch_size,
        "--save-every": args.save_every,
    }
    embeddings = PartialEmbeddings(output, end - first, args.output_dtype, about)
    if embeddings.done:
        print(f"{output}: resuming after row {embeddings.done:,} of {end - first:,}", flush=True)
    left = itertools.islice(iter(sentences), first + embeddings.done, end)
    with Progress(end - first, done=embeddings.done) as bar:
        while part := list(itertools.islice(left, min(args.save_every, end - first))):
            encoded = model.encode_counted(
                part, max_length=max_length, normalize_to_unit=args.normalize, advance=bar.advance, **prompt
            )
            embeddings.append(encoded.embeddings, encoded.cut)
    if embeddings.done != end - first or sentences.has_changed():
        raise UserError(f"{sentences.path}: changed while it was read; start again")
    # An index is built of them for this model, which cuts sentences at its own length. Products and distances also
    # need the lengths that its queries have.
    its_own = args.normalize in (None, model.normalize) or model.similarity_fn_name == "cosine"
    its_own &= max_length == model.max_length
    maker = model.identity()._replace(prompt=model.prompt_of(**prompt))._asdict() if its_own else None
    embeddings.finish(itertools.islice(iter(sentences), first, end), first, maker)
    print(f"{output}: {end - first:,} embeddings of {model.dimension} elements, {args.output_dtype}")
    if embeddings.cut:
        count = "1 sentence was" if embeddings.cut == 1 else f"{embeddings.cut:,} sentences were"
        print(f"{sentences.path}: {count} longer than {max_length} tokens and cut there", file=sys.stderr)


if __name__ == "__main__":
    run_command(main)
