"""simcse-jax prepare --data FILES --model M --output FOLDER: a corpus's tokens on disk, for training.

Sentences are tokenized once, in shards; training on FOLDER reads a batch at a time. Memory does not grow with the
corpus. The same command, given again or at the same time elsewhere, makes the shards that are missing.
"""

import argparse
import itertools
import re
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcse_jax.commands.command_line import Parser, say_next, warnings_in_a_line
from simcse_jax.errors import UserError
from simcse_jax.host import streams
from simcse_jax.host.storage import Folder, is_remote

if TYPE_CHECKING:  # the rest is imported once the options are known to be right
    from simcse_jax.data.corpus.manifest import Manifest
    from simcse_jax.huggingface.tokenizer import Tokenizer

ROLES = ("anchor", "positive", "negative", "neutral", "label")
AUGMENT = ("percent", "both", "lexicon")
FIELDS = {  # of a config, in messages about data, and the options here
    r"perhaps scores; .*data\.columns\.(anchor=.*) data\.columns\.(positive=.*)": r"name the pair: --columns \1 \2",
    r"data\.columns\.(\w+)(=('[^']*'|\S+))?": r"--columns \1=NAME",
    r"data\.columns": "--columns",
    r"data\.positives='?(\w+)'?": r"--positives \1",
    r"data\.positives": "--positives",
    r"data\.train=": "--data ",
    r"objective\.softmax_nli": "--labels",
}


def main() -> None:
    """The command."""
    args = parse()
    from simcse_jax.data.corpus.manifest import corpus_path

    folder = corpus_path(args.output)
    if args.verify:
        verify(Path(folder))
        return
    from simcse_jax.runs.loading import load_model

    if not is_remote(folder):
        check_output(args)
    model = replace(load_model(args.model), template=args.template)
    model.check_layers("training on a corpus")
    if (most := max(args.max_length)) > model.config.max_length:
        raise UserError(f"--max-length {most}: {args.model} takes at most {model.config.max_length} tokens")
    tokenizer, vocabulary = model.tokenizer, model.config.vocab_size
    if tokenizer.template is not None and min(args.max_length) <= tokenizer.template.size:
        raise UserError(f"--max-length {min(args.max_length)}: the template alone has {tokenizer.template.size} tokens")
    del model
    try:
        with warnings_in_a_line():
            manifest = prepare(args, folder, tokenizer, vocabulary)
    except UserError as error:
        raise UserError(with_options(str(error))) from None
    if manifest is None:
        print(f"{args.output}: other processes are making the shards that are left; the last one completes the corpus")
        return
    report(manifest, args.output)
    say_next("train", "--config", "FILE", "--data", args.output, "--model", args.model, "--workdir", "DIR")


def prepare(args: argparse.Namespace, folder: Folder, tokenizer: "Tokenizer", vocabulary: int) -> "Manifest | None":
    """Makes what is missing of the corpus; None if other processes will complete it."""
    from simcse_jax.data.corpus.making import make
    from simcse_jax.data.corpus.plan import Preparation, enter, make_plan
    from simcse_jax.data.corpus.shared_folder import leave
    from simcse_jax.data.tokens import Lengths

    augment = {name: getattr(args, f"augment_{name}") for name in AUGMENT} | {"name": args.augment}
    preparation = Preparation(
        args.max_length[0] if len(args.max_length) == 1 else Lengths(*args.max_length),
        columns=read_columns(args.columns, ROLES),
        positives=args.positives,
        labels=args.labels,
        mixed=args.mixed,
        prompts=args.prompt,
        augment=augment if args.augment else None,
        seed=args.seed,
        keep_text=args.keep_text,
        shard_rows=args.shard_rows,
    )
    plan = make_plan(args.data, tokenizer, vocabulary, preparation)
    enter(folder, plan)
    try:
        return make(folder, plan, tokenizer)
    except UserError:
        leave(folder, plan)
        raise


def with_options(message: str) -> str:
    """A message about data, with the options of this command for the fields of a config."""
    for field, option in FIELDS.items():
        message = re.sub(rf"(?<![\w/.])(?:config\.)?{field}", option, message)
    return message


def report(manifest: "Manifest", output: str) -> None:
    """Prints what a corpus has."""
    left_out: Counter[str] = Counter()
    for source in manifest.sources:
        left_out.update(source["left_out"])
    tokens = sum(shard.tokens for shard in manifest.shards)
    size = sum(shard.bytes for shard in manifest.shards)
    mixed = any(shard.columns < manifest.columns for shard in manifest.shards)  # a sentence may be its own positive
    columns = manifest.histogram[: 1 if mixed else None]
    most = [manifest.lengths[min(column, 1)] for column in range(len(columns))]
    if full := sum(counts[length] for counts, length in zip(columns, most, strict=True)):
        kept = " or ".join(str(length) for length in dict.fromkeys(most))
        what = "anchors" if mixed else "sentences"
        print(f"{full:,} {what} have all {kept} tokens that are kept: longer ones were cut")
    if left_out:
        print("left out: " + ", ".join(f"{count:,} {why} rows" for why, count in sorted(left_out.items())))
    print(f"{manifest.rows:,} rows, {tokens:,} tokens, {size:,} bytes in {len(manifest.shards)} shards: {output}")


def parse() -> argparse.Namespace:
    """The options, after all checks that need no file."""
    from simcse_jax.choices import PLACE
    from simcse_jax.config.loss_fields import is_template
    from simcse_jax.data.corpus.plan import SHARD_ROWS
    from simcse_jax.data.corpus.source_rows import CHANGES

    parser = Parser(
        "prepare",
        description="Tokenizes training data once, into a folder that config.data.train takes. Processes that are "
        "given the same command share the work, and one that was stopped goes on.",
    )
    parser.add_argument(
        "--data",
        nargs="+",
        default=[],
        help="sources as config.data.train has them, or patterns such as 'gs://b/*.parquet'",
    )
    parser.add_argument("--model", help="the model to train, whose tokenizer is used")
    parser.add_argument("--output", required=True, help="the corpus's folder, on a disk or gs://BUCKET/FOLDER")
    parser.add_argument(
        "--max-length",
        type=int,
        nargs="+",
        default=[32],
        help="tokens per sentence; longer sentences are cut. Two numbers: of anchors, and of all others",
    )
    parser.add_argument(
        "--columns", nargs="+", default=[], metavar="ROLE=NAME", help=f"names of columns; roles: {', '.join(ROLES)}"
    )
    parser.add_argument("--positives", default="", help="as config.data.positives, but for spans (default: the column)")
    parser.add_argument("--labels", action="store_true", help="keep labels, which objective.softmax_nli needs")
    parser.add_argument("--mixed", action="store_true", help="sources may have different columns")
    before = "text before sentences: one, or one for each column"
    parser.add_argument("--prompt", type=streams.argument, nargs="+", default=[], help=before)
    around = "as config.model.template: text around every sentence, [X] the sentence's place (default: the model's own)"
    parser.add_argument("--template", type=streams.argument, default="", help=around)
    parser.add_argument("--augment", default="", help=f"changed copies as positives: {', '.join(CHANGES)}")
    percent, some = "of words that crop and delete remove (default: 10)", "--augment crop or --augment delete"
    parser.add_argument("--augment-percent", type=float, only=some, help=percent)
    anchor = "change the anchor too, in another way"
    parser.add_argument("--augment-both", action="store_true", only="--augment", help=anchor)
    parser.add_argument("--augment-lexicon", only="--augment synonym", help="for synonym: a WordNet file in WN-LMF")
    drawn = "--augment or --positives next_3_sentences"
    seeded = "of changed copies and next_3_sentences (default: 42)"
    parser.add_argument("--seed", type=int, least=0, most=2**32 - 1, only=drawn, help=seeded)
    parser.add_argument("--keep-text", action="store_true", help="keep the sentences too, in files of their own")
    parser.add_argument("--shard-rows", type=int, least=1, help=f"the most rows of a shard (default: {SHARD_ROWS:,})")
    parser.add_argument("--verify", action="store_true", help="read all of a corpus on a disk, and compare its hashes")
    args = parser.parse_args(sys.argv[1:])
    if args.verify:
        if is_remote(args.output):
            raise UserError(f"--verify: {args.output} is in a bucket; a copy of it is compared when it is made")
        others = [name for name, value in vars(args).items() if value != parser.get_default(name)]
        if others := [f"--{name.replace('_', '-')}" for name in others if name not in ("verify", "output")]:
            raise UserError(f"--verify: reads the corpus in --output and nothing else; leave out {', '.join(others)}")
        return args
    for option in ("data", "model"):
        if not getattr(args, option):
            raise UserError(f"--{option}: is missing")
    given = " ".join(map(str, args.max_length))
    if len(args.max_length) > 2:
        raise UserError(f"--max-length {given}: must be one number, or two: of anchors, and of all others")
    if min(args.max_length) < 3:
        raise UserError(f"--max-length {given}: must be 3 or more; two of them are special tokens")
    check_choices(args, CHANGES)
    if args.template and not is_template(args.template):
        raise UserError(f"--template {args.template!r:.100}: must be a text around {PLACE}, which it has once")
    args.seed = 42 if args.seed is None else args.seed
    args.augment_percent = 10.0 if args.augment_percent is None else args.augment_percent
    if not 0 < args.augment_percent < 100:
        raise UserError(f"--augment-percent {args.augment_percent}: must be above 0 and below 100")
    return args


def check_choices(args: argparse.Namespace, changes: tuple[str, ...]) -> None:
    """Refuses what a corpus cannot have, and options that do not go together.

    Raises:
      UserError: naming the option.
    """
    from simcse_jax.choices import POSITIVES

    if args.positives == "spans":
        raise UserError(
            "--positives spans: they are drawn from whole documents; name the .txt file in config.data.train"
        )
    known = [each for each in POSITIVES if each != "spans"]
    if args.positives and args.positives not in known:
        raise UserError(f"--positives {args.positives}: must be one of {', '.join(known)}, or left out")
    if args.augment and args.augment not in changes:
        raise UserError(
            f"--augment {args.augment}: must be one of {', '.join(changes)}; others are made in memory by "
            "config.data.augment, from the files themselves"
        )
    if args.augment == "synonym" and not args.augment_lexicon:
        raise UserError("--augment-lexicon: must be given for --augment synonym")
    for option, given in (("positives", args.positives), ("labels", args.labels)):
        if args.augment and given:
            raise UserError(f"--augment {args.augment}: makes the positives, so --{option} must not be given")
    if args.labels and args.positives not in ("", "all"):
        raise UserError(f"--labels: all pairs must be kept, but --positives {args.positives} leaves some out")


def read_columns(texts: Sequence[str], roles: Sequence[str]) -> dict[str, str]:
    """ROLE=NAME, … as a table.

    Raises:
      UserError: for a role that is not one of `roles`, or one without the others that it needs.
    """
    columns: dict[str, str] = {}
    for text in texts:
        role, equals, name = text.partition("=")
        if role not in roles or not equals or not name or role in columns:
            raise UserError(f"--columns {text}: must be ROLE=NAME, each role once; roles are {', '.join(roles)}")
        columns[role] = name
    for needed, role in itertools.pairwise(ROLES[:4]):
        if role in columns and needed not in columns:
            raise UserError(f"--columns: {role} is given, so {needed} must be too")
    return columns


def check_output(args: argparse.Namespace) -> None:
    """Checks the folder before the work.

    Raises:
      UserError: when it cannot be written to, or has a source.
    """
    from simcse_jax.host.outputs import output_folder

    inputs: dict[str, Any] = {f"--data {name}": name for name in args.data} | {"--model": args.model}
    output_folder(args.output, inputs, files=("shard-*", "corpus.json", "plan.json"))


def verify(folder: Path) -> None:
    """Compares the hashes of all files with the manifest's.

    Raises:
      UserError: naming the first file that differs.
    """
    from simcse_jax.data.corpus.manifest import REPAIR, check_sizes, read_manifest
    from simcse_jax.data.corpus.shared_folder import hash_file
    from simcse_jax.host.hidden import PLAN

    manifest = read_manifest(folder)
    parts = None if (folder / PLAN).is_file() else 1  # a copy for training has neither the plan nor texts
    files = [file for shard in manifest.shards for file in shard.files[:parts]]
    check_sizes(folder, files)
    for file in files:
        if hash_file(folder / file.name) != file.sha256:
            raise UserError(f"{folder / file.name}: was changed since it was written; {REPAIR}")
    print(f"{folder}: {len(manifest.shards)} shards of {manifest.rows:,} rows are as they were written")
