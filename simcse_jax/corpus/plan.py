"""What a corpus is made of: the sources, and all that its tokens depend on."""

import glob
import hashlib
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from simcse_jax.corpus.claims import claimed
from simcse_jax.corpus.sealed import read_sealed, write_sealed
from simcse_jax.corpus.shards import MOST_TOKENS, token_type
from simcse_jax.corpus.stamps import hash_file, stamp_of
from simcse_jax.corpus.usable import check_usable
from simcse_jax.data.examples import open_source, prefix_of, source_path
from simcse_jax.data.sources import KINDS, split_sources
from simcse_jax.errors import UserError, reason, why
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.storage import Folder, as_path, is_remote, local_path

FILE = "plan.json"  # stays in the folder, so that a shard that was lost can be made again
SHARD_ROWS = 1 << 22
ATTEMPTS = 20  # before a claim in a bucket counts as a dead process's, perhaps


class Plan(NamedTuple):
    """All that decides a corpus's bytes, and when the sources were written."""

    key: dict[str, Any]
    stamps: dict[str, str]  # of sources, by name: `Stamp.written`

    @property
    def sources(self) -> list[str]:
        """The sources' names."""
        return [source["name"] for source in self.key["sources"]]

    @property
    def columns(self) -> int:
        """The most columns that a source has, with those that are made."""
        return max(source["columns"] for source in self.key["sources"])


def make_plan(
    data: Sequence[str],
    tokenizer: Tokenizer,
    vocabulary: int,
    max_length: int,
    *,
    columns: Mapping[str, str],
    positives: str = "",
    labels: bool = False,
    mixed: bool = False,
    prompts: Sequence[str] = (),
    augment: Mapping[str, Any] | None = None,
    seed: int = 42,
    keep_text: bool = False,
    shard_rows: int | None = None,
) -> Plan:
    """Looks at all sources, and reads none but its first rows.

    Args:
      data: sources as `data.train` has them, or patterns of files.
      tokenizer, vocabulary, max_length: of the model; sentences are cut after `max_length` tokens.
      columns, positives, labels, mixed: as for `data.examples.read_examples`.
      prompts: texts put before sentences: none, one for all columns, or one for each.
      augment: `name`, `percent`, `both` and `lexicon` of changed copies; None: none are made.
      seed: of what is drawn: changed copies and next sentences.
      keep_text: whether sentences are kept too.
      shard_rows: the most rows of a source that make a shard; None: as many as are usual and possible.

    Raises:
      UserError: naming the source that does not fit.
    """
    names = expand(data)
    sources: list[dict[str, Any]] = []
    stamps: dict[str, str] = {}
    for name in names:
        source = open_source(name, columns, positives, labels)
        made = positives.startswith("next_") or augment
        if augment and len(source.chosen) > 1:
            hint = "choose its sentences with --columns anchor=…"
            raise UserError(f"--augment {augment['name']}: {name} has positives of its own; {hint}")
        stamp = stamp_of(name)
        stamps[name] = stamp.written
        sources.append({"name": name, "bytes": stamp.bytes, "columns": 2 if made else len(source.chosen)})
    widths = [source["columns"] for source in sources]
    if len(set(widths)) > 1 and not mixed:
        other = next(place for place, width in enumerate(widths) if width != widths[0])
        raise UserError(
            f"--data: {names[0]} has {KINDS[widths[0] - 1]}, {names[other]} has {KINDS[widths[other] - 1]}; "
            "name sources of one kind, choose the same columns with --columns, or add --mixed"
        )
    if len(prompts) not in (0, 1, max(widths)):
        raise UserError(f"--prompt: {len(prompts)} were given for {max(widths)} columns; give one, or one for each")
    most = MOST_TOKENS // (max_length * max(widths))
    if shard_rows is not None and shard_rows > most:
        raise UserError(f"--shard-rows {shard_rows}: must be at most {most}, or a shard may have too many tokens")
    (empty,) = tokenizer([""], max_length)
    key = {
        "sources": sources,
        "tokenizer": hashlib.sha256(tokenizer.content()).hexdigest(),
        "special_tokens": empty.tolist(),
        "token_bytes": token_type(vocabulary).itemsize,
        "max_length": max_length,
        "truncation": "right",
        "columns": {role: name for role, name in sorted(columns.items()) if name},
        "positives": positives,
        "labels": labels,
        "prompts": [*prompts] * (max(widths) if len(prompts) == 1 else 1) if any(prompts) else [],
        "augment": _identified(augment) if augment else {},
        "seed": seed if augment or positives == "next_3_sentences" else 0,
        "keep_text": keep_text,
        "shard_rows": shard_rows or min(SHARD_ROWS, most),
    }
    return Plan(json.loads(json.dumps(key)), stamps)


def _identified(augment: Mapping[str, Any]) -> dict[str, Any]:
    """The choices of changed copies, with the hash of the lexicon."""
    lexicon = augment.get("lexicon")
    return {**augment, **({"lexicon_sha256": hash_file(local_path(lexicon))} if lexicon else {})}


def expand(data: Sequence[str]) -> list[str]:
    """The sources, with the files of each pattern in the order of their names.

    Raises:
      UserError: when a pattern has no file, or a source is named twice.
    """
    found: list[str] = []
    for given in data:
        for name in split_sources(given):
            if prefix_of(name) or not glob.has_magic(name) or (not is_remote(name) and source_path(name).exists()):
                found.append(name)
                continue
            files = _matching(name)
            if not files:
                raise UserError(f"--data {name}: no file has such a name")
            found += files
    for place, name in enumerate(found):
        if name in found[:place]:
            raise UserError(f"--data: {name} is named twice; remove one")
    return found


def _matching(pattern: str) -> list[str]:
    if not is_remote(pattern):
        return sorted(glob.glob(str(source_path(pattern)), recursive=True))
    bucket, _, rest = pattern.removeprefix("gs://").partition("/")
    try:
        return sorted(str(path) for path in as_path(f"gs://{bucket}").glob(rest))
    except UserError:
        raise
    except Exception as error:  # of the store's client
        raise UserError(f"--data {pattern}: cannot be listed: {reason(error)}") from None


def enter(folder: Folder, plan: Plan) -> None:
    """Writes the plan into a new corpus's folder, or checks that the folder is for the same corpus.

    Raises:
      UserError: naming what differs, or the source that cannot be used, or when the folder has other files.
    """
    if read_sealed(folder / FILE) is None:
        check_usable(plan.key)
    for attempt in itertools.count():
        with claimed(folder / FILE, patient=attempt > ATTEMPTS) as mine:
            if mine:
                _write_or_compare(folder, plan)
                return
        time.sleep(0.1)  # another process has begun just now


def _write_or_compare(folder: Folder, plan: Plan) -> None:
    before = read_sealed(folder / FILE)
    if before is not None:
        _compare(folder, before["key"], plan.key)
        _compare_stamps(folder, before["stamps"], plan.stamps)
    elif others := sorted(name for name in names_in(folder) if not name.startswith(".")):
        raise UserError(f"--output {folder}: has other files ({others[0]}) and no {FILE}; choose another folder")
    else:
        write_sealed(folder / FILE, {"key": plan.key, "stamps": plan.stamps})


def check_unchanged(folder: Folder, plan: Plan) -> None:
    """Looks at the sources once more.

    Raises:
      UserError: naming one that was changed since the plan was made.
    """
    _compare_stamps(folder, plan.stamps, {name: stamp_of(name).written for name in plan.sources})


def names_in(folder: Folder) -> set[str]:
    """The names of all files in a corpus's folder.

    Raises:
      UserError: when it cannot be read.
    """
    try:
        return {path.name for path in folder.iterdir()}
    except Exception as error:  # an OSError, or an error of a store's client
        raise UserError(f"{folder}: cannot be read: {why(error)}") from None


def leave(folder: Folder) -> None:
    """After a mistake in the data: removes the plan, and the folder, if nothing was made and nobody else is at work.

    A source that is corrected is another one, with which a corpus that was begun does not go on.
    """
    if folder.is_dir() and names_in(folder) == {FILE}:
        (folder / FILE).unlink()
        if not is_remote(folder):
            folder.rmdir()


def _compare(folder: Folder, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    differing = [name for name in now if before.get(name) != now[name]]
    if differing:
        was = "; ".join(_difference(name, before.get(name), now[name]) for name in differing)
        raise UserError(f"--output {folder}: is another corpus's: {was}; choose another folder")


def _difference(name: str, before: Any, now: Any) -> str:
    """What differs in a field of the key; of sources, the first that does."""
    if name != "sources" or not isinstance(before, list):
        return f"{name} was {before!r:.80}, is {now!r:.80}"
    nothing: dict[str, Any] = {}
    for place, (one, other) in enumerate(itertools.zip_longest(before, now, fillvalue=nothing), 1):
        fields = [field for field in other or one if one.get(field) != other.get(field)]
        if "name" in fields:
            was, new = (each.get("name", "missing") for each in (one, other))
            return f"source {place} was {was}, is {new}"
        if fields:
            return f"{one['name']}: {fields[0]} was {one[fields[0]]}, is {other[fields[0]]}"
    raise AssertionError(name)


def _compare_stamps(folder: Folder, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    for name, stamp in now.items():
        if before.get(name) != stamp:
            raise UserError(
                f"{name}: was changed since {folder} was begun; choose another --output, or remove that folder"
            )
