"""simcse-jax prepare --data FILES --model M --output FOLDER: a corpus's tokens on disk, for training.

Sentences are tokenized once, into a file for each source; training on FOLDER reads a batch at a time. Memory does not
grow with the corpus. The same command, given again after a kill, makes the files that are missing.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from simcse_jax.choices import PLACE
from simcse_jax.commands.command_line import say_next, shorten_warnings
from simcse_jax.commands.verbs import Count, Counts, Prompts, Seed, Text, Texts, verb
from simcse_jax.config.loss_fields import is_template
from simcse_jax.errors import UserError
from simcse_jax.host.storage import is_remote

if TYPE_CHECKING:  # the rest is imported once the options are known to be right
    from simcse_jax.data.corpus.manifest import Manifest

ROLES = ("anchor", "positive", "negative", "neutral", "label")
FIELDS = {  # of a config, in messages about data, and the options here
    r"perhaps scores; .*data\.columns\.(anchor=.*) data\.columns\.(positive=.*)": r"name the pair: --columns \1 \2",
    r"data\.columns\.(\w+)(=('[^']*'|\S+))?": r"--columns \1=NAME",
    r"data\.columns": "--columns",
    r"data\.positives='?(\w+)'?": r"--positives \1",
    r"data\.positives": "--positives",
    r"data\.train=": "--data ",
    r"objective\.softmax_nli": "--labels",
}


@verb
def prepare(
    data: Texts = (),
    model: str = "",
    *,
    output: str,
    max_length: Counts = (32,),
    columns: Texts = (),
    positives: Literal["entailment", "neutral", "contradiction", "all", "next_sentence", "next_3_sentences"]
    | None = None,
    labels: bool = False,
    mixed: bool = False,
    prompt: Prompts = (),
    template: Text = "",
    augment: Literal["crop", "delete", "delete_one", "synonym"] | None = None,
    augment_percent: Annotated[float, Parameter(validator=Number(gt=0, lt=100))] = 10.0,
    augment_both: bool = False,
    augment_lexicon: str | None = None,
    seed: Seed = 42,
    keep_text: bool = False,
    num_proc: Count = 1,
    verify: bool = False,
) -> None:
    """Tokenizes training data once, into a folder that training takes as its data.

    The same call, given again after a kill, makes the files that are missing.

    Args:
      data: Sources as config.data.train has them, or patterns such as 'gs://b/*.parquet'.
      model: The model to train, whose tokenizer is used.
      output: The corpus's folder, on a disk or gs://BUCKET/FOLDER.
      max_length: Tokens per sentence; longer sentences are cut. Two numbers: of anchors, and of all others.
      columns: Names of columns, ROLE=NAME; roles: anchor, positive, negative, neutral, label.
      positives: As config.data.positives, but for spans, which are drawn from whole documents. By default the column.
      labels: Keep labels, which objective.softmax_nli needs.
      mixed: Sources may have different columns.
      prompt: Text before sentences: one, or one for each column.
      template: As config.model.template: text around every sentence, [X] the sentence's place. By default the model's
        own.
      augment: Changed copies as positives; others than these are made in memory by config.data.augment.
      augment_percent: Of words that crop and delete remove.
      augment_both: Change the anchor too, in another way.
      augment_lexicon: For synonym: a WordNet file in WN-LMF.
      seed: Of changed copies and next_3_sentences.
      keep_text: Keep the sentences too, in a column of the files.
      num_proc: Processes; each makes the file of one source at a time.
      verify: Read all of a corpus on a disk, and compare its hashes; needs the output alone.

    Raises:
      UserError: for any mistake in the options or the data.
    """
    from simcse_jax.data.corpus.manifest import corpus_path
    from simcse_jax.host.outputs import output_folder

    folder = corpus_path(output)
    if verify:
        if data:
            raise UserError("--verify: reads the corpus in --output and nothing else; leave out --data")
        if is_remote(folder):
            raise UserError(f"--verify: {output} is in a bucket; a copy of it is compared when it is made")
        verify_corpus(Path(folder))
        return
    for option, value in {"--data": data, "--model": model}.items():
        if not value:
            raise UserError(f"{option}: is missing")
    check_lengths_and_positives(max_length, positives, labels, augment, augment_lexicon)
    if template and not is_template(template):
        raise UserError(f"--template {template!r:.100}: must be a text around {PLACE}, which it has once")
    names = read_columns(columns, ROLES)
    if not is_remote(folder):
        inputs = {f"--data {name}": name for name in data} | {"--model": model}
        output_folder(output, inputs, files=("data-*", "corpus.json"))
    from simcse_jax.data.corpus.making import Preparation, make, make_plan
    from simcse_jax.data.tokens import Lengths
    from simcse_jax.runs.loading import load_model

    loaded = replace(load_model(model), template=template)
    loaded.check_layers("training on a corpus")
    if (most := max(max_length)) > loaded.config.max_length:
        raise UserError(f"--max-length {most}: {model} takes at most {loaded.config.max_length} tokens")
    tokenizer, vocabulary = loaded.tokenizer, loaded.config.vocab_size
    del loaded
    if tokenizer.template is not None and (least := min(max_length)) <= tokenizer.template.size:
        raise UserError(f"--max-length {least}: the template alone has {tokenizer.template.size} tokens")
    changes: dict[str, Any] = {"name": augment, "percent": augment_percent, "both": augment_both}
    changes["lexicon"] = augment_lexicon if augment == "synonym" else None
    preparation = Preparation(
        max_length[0] if len(max_length) == 1 else Lengths(*max_length),
        columns=names,
        positives=positives or "",
        labels=labels,
        mixed=mixed,
        prompts=prompt,
        augment=changes if augment else None,
        seed=seed,
        keep_text=keep_text,
    )
    try:
        with shorten_warnings():
            plan = make_plan(data, tokenizer, vocabulary, preparation)
            manifest = make(folder, plan, tokenizer, num_proc)
    except UserError as error:
        raise UserError(name_options(str(error))) from None
    report(manifest, output)
    say_next("train", "--config", "FILE", "--data", output, "--model", model, "--workdir", "DIR")


def check_lengths_and_positives(
    max_length: Sequence[int], positives: str | None, labels: bool, augment: str | None, augment_lexicon: str | None
) -> None:
    """Refuses lengths that no sentence fits into, and ways to positives that contradict each other."""
    listed = " ".join(map(str, max_length))
    if not 1 <= len(max_length) <= 2 or min(max_length) < 3:
        raise UserError(
            f"--max-length {listed}: must be one number, or two (of anchors, and of all others), of 3 or more: two of "
            "them are special tokens"
        )
    if augment == "synonym" and not augment_lexicon:
        raise UserError("--augment-lexicon: must be given for --augment synonym")
    for option, is_given in {"--positives": positives, "--labels": labels}.items():
        if augment and is_given:
            raise UserError(f"--augment {augment}: makes the positives, so {option} must not be given")
    if labels and positives not in (None, "all"):
        raise UserError(f"--labels: all pairs must be kept, but --positives {positives} leaves some out")


def name_options(message: str) -> str:
    """A message about data, with the options of this command for the fields of a config."""
    for field, option in FIELDS.items():
        message = re.sub(rf"(?<![\w/.])(?:config\.)?{field}", option, message)
    return message


def report(manifest: "Manifest", output: str) -> None:
    """Prints what a corpus has."""
    left_out, full = Counter[str](), 0
    anchor, other = manifest.lengths
    lengths = [anchor, *[other] * (manifest.columns - 1)]
    for shard in manifest.shards:
        left_out.update(shard.left_out)
        full += sum(counts[length] for counts, length in zip(shard.histogram, lengths, strict=True))
    if full:
        kept = " or ".join(map(str, dict.fromkeys(manifest.lengths[: manifest.columns])))
        print(f"{full:,} sentences have all {kept} tokens that are kept: longer ones were cut")
    if left_out:
        print("left out: " + ", ".join(f"{count:,} {why} rows" for why, count in sorted(left_out.items())))
    tokens, size = (sum(getattr(shard, name) for shard in manifest.shards) for name in ("tokens", "bytes"))
    print(f"{manifest.rows:,} rows, {tokens:,} tokens, {size:,} bytes in {len(manifest.shards)} files: {output}")


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


def verify_corpus(folder: Path) -> None:
    """Compares the hashes of all files with the manifest's.

    Raises:
      UserError: naming the first file that differs.
    """
    from simcse_jax.data.corpus.manifest import REPAIR, check_sizes, read_manifest
    from simcse_jax.data.identity import hash_file

    manifest = read_manifest(folder)
    check_sizes(folder, manifest.shards)
    for shard in manifest.shards:
        if hash_file(folder / shard.file) != shard.sha256:
            raise UserError(f"{folder / shard.file}: was changed since it was written; {REPAIR}")
    print(f"{folder}: {len(manifest.shards)} files of {manifest.rows:,} rows are as they were written")
