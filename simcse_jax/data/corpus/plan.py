"""The plan of a corpus: its sources, and everything that its tokens depend on."""

import hashlib
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from simcse_jax.data.corpus import shared_folder
from simcse_jax.data.corpus.shards import MOST_TOKENS, token_type
from simcse_jax.data.corpus.shared_folder import FolderPlan, hash_file, stamp_of
from simcse_jax.data.corpus.source_rows import check_usable
from simcse_jax.data.documents import REACH
from simcse_jax.data.examples import open_source, prefix_of
from simcse_jax.data.files import files_of
from simcse_jax.data.sources import kind_of, same_kind
from simcse_jax.data.tokens import Lengths, Prompts, check_prompts
from simcse_jax.errors import UserError
from simcse_jax.host.names import split_sources
from simcse_jax.host.storage import Folder, as_path, is_remote, local_path
from simcse_jax.huggingface.tokenizer import Tokenizer

SHARD_ROWS = 1 << 22


class Preparation(NamedTuple):
    """How a corpus is made of its sources; `columns`, `positives`, `labels` and `mixed` as in `read_examples`."""

    max_length: int | Lengths  # in tokens, where sentences are cut; for all columns, or for anchors and for others
    columns: Mapping[str, str] = MappingProxyType({})
    positives: str = ""
    labels: bool = False
    mixed: bool = False
    prompts: Sequence[str] = ()  # before sentences: one for all columns, or one for each; negatives share the third
    augment: Mapping[str, Any] | None = None  # `name`, `percent`, `both` and `lexicon` of changed copies
    seed: int = 42  # for changed copies and next sentences
    keep_text: bool = False
    shard_rows: int | None = None  # the maximum of a source's rows in a shard; None for the usual number or fewer


def make_plan(data: Sequence[str], tokenizer: Tokenizer, vocabulary: int, preparation: Preparation) -> FolderPlan:
    """Examines all sources, reading only their first rows; with lists of hard negatives, all rows, to find the longest.

    Args:
      data: sources as in `data.train`, each file of a folder or of a pattern being one.
      vocabulary: the number of token ids.
    """
    max_length, columns, positives, labels, mixed, prompts, augment, seed, keep_text, shard_rows = preparation
    names = expand(data, "--data")
    looked = [_examine(name, columns, positives, labels, augment or {}) for name in names]
    lengths = Lengths(max_length, max_length) if isinstance(max_length, int) else max_length
    longest, width = max(lengths), _widest([sample.source for sample in looked], mixed)
    if not isinstance(max_length, int) and width == 1:
        raise UserError(f"--max-length: two lengths, but {names[0]} has one column of sentences; give one")
    prompts = _for_columns(prompts, width)
    check_prompts(tokenizer, [Prompts(prompts[0], other) for other in prompts[1:] or prompts], lengths, "--prompt")
    key = {
        "sources": [sample.source for sample in looked],
        "tokenizer": hashlib.sha256(tokenizer.content()).hexdigest(),
        "special_tokens": tokenizer([""], longest)[0].tolist(),
        "token_bytes": token_type(vocabulary).itemsize,
        "max_length": longest,
        "truncation": "right",
        "columns": {role: name for role, name in sorted(columns.items()) if name},
        "positives": positives,
        "labels": labels,
        "prompts": [*prompts] if any(prompts) else [],
        "augment": _identified(augment) if augment else {},
        "seed": seed if augment or positives == "next_3_sentences" else 0,
        "keep_text": keep_text,
        "shard_rows": _rows_of_a_shard(shard_rows, longest * width),
    }
    if not isinstance(max_length, int):
        key["lengths"] = list(lengths)
    return FolderPlan(
        json.loads(json.dumps(key)), {name: sample.written for name, sample in zip(names, looked, strict=True)}
    )


def _rows_of_a_shard(asked: int | None, tokens: int) -> int:
    """The maximum number of rows; `tokens` is that of a row's tokens."""
    most = MOST_TOKENS // tokens
    if asked is not None and asked > most:
        raise UserError(f"--shard-rows {asked}: must be at most {most}, or a shard may have too many tokens")
    return asked or min(SHARD_ROWS, most)


class _Examined(NamedTuple):
    """A source, known from its first rows."""

    source: dict[str, Any]
    written: str  # see `Stamp`


def _examine(
    name: str, columns: Mapping[str, str], positives: str, labels: bool, augment: Mapping[str, Any]
) -> _Examined:
    source, stamp = open_source(name, columns, positives, labels), stamp_of(name)
    if augment and len(source.chosen) > 1:
        hint = "choose its sentences with --columns anchor=…"
        raise UserError(f"--augment {augment['name']}: {name} has positives of its own; {hint}")
    width = 2 if augment or positives in REACH else source.widest()
    return _Examined({"name": name, "bytes": stamp.bytes, "columns": width}, stamp.written)


def _widest(sources: Sequence[Mapping[str, Any]], mixed: bool) -> int:
    """The maximum number of columns; refuses sources of different kinds unless they may be `mixed`."""
    first = sources[0]
    for other in sources:
        if not mixed and not same_kind(other["columns"], first["columns"]):
            raise UserError(
                f"--data: {first['name']} has {kind_of(first['columns'])}, {other['name']} has "
                f"{kind_of(other['columns'])}; name sources of one kind, choose the same columns with --columns, or "
                "add --mixed"
            )
    return max(source["columns"] for source in sources)


def _for_columns(prompts: Sequence[str], width: int) -> Sequence[str]:
    """A prompt for each of the columns; () for none."""
    if len(prompts) == 3 < width:
        prompts = [*prompts, *[prompts[2]] * (width - 3)]
    if len(prompts) not in (0, 1, width):
        raise UserError(f"--prompt: {len(prompts)} were given for {width} columns; give one, or one for each")
    return [*prompts] * width if len(prompts) == 1 else prompts


def _identified(augment: Mapping[str, Any]) -> dict[str, Any]:
    """The options of changed copies, with the lexicon's hash."""
    lexicon = augment.get("lexicon")
    return {**augment, **({"lexicon_sha256": hash_file(local_path(lexicon))} if lexicon else {})}


def most_columns(plan: FolderPlan) -> int:
    """The maximum number of columns of a source, including generated ones."""
    return max(source["columns"] for source in plan.key["sources"])


def enter(folder: Folder, plan: FolderPlan) -> None:
    """Writes the plan into a new corpus's folder, or checks that an existing folder is for the same corpus."""
    shared_folder.enter(folder, plan, "another corpus's", lambda: check_usable(plan.key))


def expand(data: Sequence[str], option: str) -> list[str]:
    """The sources, with the files of each folder and of each pattern, sorted by name."""
    names: list[str] = []
    for name in itertools.chain.from_iterable(map(split_sources, data)):
        try:
            names += [name] if prefix_of(name) else files_of(name)
        except UserError as error:
            raise UserError(f"{option} {error}") from None
    seen: set[str] = set()
    for name in names:
        place = name if prefix_of(name) or is_remote(name) else os.path.abspath(as_path(name))
        if place in seen:
            raise UserError(f"{option}: {name} is named twice; remove one")
        seen.add(place)
    return names
