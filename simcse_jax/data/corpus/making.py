"""Makes the missing shards of a corpus, and its manifest once all shards exist."""

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from simcse_jax.data.corpus import shared_folder
from simcse_jax.data.corpus.manifest import (
    NAME,
    Manifest,
    Shard,
    is_prepared,
    is_whole,
    read_manifest,
    spread,
    write_manifest,
)
from simcse_jax.data.corpus.plan import most_columns
from simcse_jax.data.corpus.shards import TEXT, ShardWriter
from simcse_jax.data.corpus.shared_folder import FolderPlan
from simcse_jax.data.corpus.source_rows import Augmentation, Item, Items, make_change
from simcse_jax.errors import UserError
from simcse_jax.host import progress
from simcse_jax.host.storage import Folder, is_remote
from simcse_jax.huggingface.tokenizer import CHUNK, Tokenizer

NO_TOKENS = np.empty(0, np.int32)  # of a missing hard negative


def make(folder: Folder, plan: FolderPlan, tokenizer: Tokenizer) -> Manifest | None:
    """Makes the shards that are missing or truncated and that no other process is making, after `plan.enter`.

    Returns:
      The manifest; None if other processes are still making shards. The last process writes it.
    """
    listed = read_manifest(folder) if is_prepared(folder) else None
    if listed is not None and is_whole(folder, (file for shard in listed.shards for file in shard.files)):
        shared_folder.remove_leftovers(folder)
        return listed
    maker, patient = _Maker(folder, plan, tokenizer, listed), False
    while True:
        made, remaining = maker.make_missing(patient)
        if not remaining:
            return _finish(folder, plan)
        if not made and (patient or not is_remote(folder)):
            return None
        patient = not made


class _Maker:
    """Goes through all sources and makes the missing shards."""

    def __init__(self, folder: Folder, plan: FolderPlan, tokenizer: Tokenizer, listed: Manifest | None):
        self._listed = {} if listed is None else {shard.file: shard for shard in listed.shards}
        self._folder, self._plan, self._key, self._tokenizer = folder, plan, plan.key, tokenizer
        self._change: Augmentation | None = make_change(plan.key["augment"], plan.key["seed"])

    def make_missing(self, patient: bool) -> tuple[int, int]:
        """Returns how many shards it made, and how many are being made by others."""
        made = remaining = 0
        files = shared_folder.names_in(self._folder)
        for source in range(len(self._plan.sources)):
            rows = Items(self._key, source, self._change)
            for block in itertools.count():
                name = shard_name(source, block)
                facts = self._facts_if_whole(name) if f"{name}.json" in files else None
                if facts is None:
                    with shared_folder.claimed(self._folder / name, patient) as is_free:
                        if is_free:
                            facts = self._facts_if_whole(name)  # another process may just have written it
                            if facts is None:
                                facts = self._make(name, source, block, rows)
                                made += 1
                if facts is None:
                    remaining += 1
                    if rows.is_last(block):
                        break
                elif facts["last"]:
                    break
        return made, remaining

    def _facts_if_whole(self, name: str) -> dict[str, Any] | None:
        facts = read_facts(self._folder, name)
        return facts if facts is not None and is_whole(self._folder, shard_of(facts).files) else None

    def _check_same(self, shard: Shard) -> None:
        """Refuses a shard whose contents differ from those it had before."""
        facts = read_facts(self._folder, shard.file)
        before = self._listed.get(shard.file) if facts is None else shard_of(facts)
        if before is not None and shard != before:
            source = self._plan.sources[shard.source]
            raise UserError(
                f"{self._folder / shard.file}: cannot be made again, since {source} now has other rows; choose another "
                "--output"
            )

    def _make(self, name: str, source: int, block: int, rows: Items) -> dict[str, Any]:
        """Writes a shard, and then its facts for the manifest."""
        started, size = time.monotonic(), self._key["shard_rows"]
        with shared_folder.written_to(self._folder / name, *([TEXT] if self._key["keep_text"] else [])) as path:
            width = self._key["sources"][source]["columns"]
            token = np.dtype(f"<u{self._key['token_bytes']}")
            with contextlib.closing(
                ShardWriter(path, token, self._key["max_length"], self._key["keep_text"])
            ) as writer:
                left_out: Counter[str] = Counter()
                counted = 0
                block_rows = rows.block(block)
                while chunk := list(itertools.islice(block_rows, CHUNK)):
                    left_out.update(item.left_out for item in chunk if item.left_out)
                    self._add(
                        writer, [(counted + at, item) for at, item in enumerate(chunk) if not item.left_out], width
                    )
                    counted += len(chunk)
                origins = writer.finish(counted)
            text = Path(f"{path}{TEXT}")
            facts = {
                "file": name,
                "source": source,
                "first": block * size,
                "source_rows": counted,
                "rows": writer.rows,
                "columns": width,
                "tokens": writer.tokens,
                "origins": origins,
                "bytes": path.stat().st_size,
                "sha256": shared_folder.hash_file(path),
                "text_bytes": shared_folder.size_of(text) if self._key["keep_text"] else 0,
                "text_sha256": shared_folder.hash_file(text) if self._key["keep_text"] else "",
                "left_out": dict(sorted(left_out.items())),
                "histogram": writer.histogram.tolist(),
                "last": rows.is_last(block),
            }
            self._check_same(shard_of(facts))
        shared_folder.write_sealed(self._folder / f"{name}.json", facts)
        seconds = time.monotonic() - started
        progress.write(f"{name}: {writer.rows:,} rows, {writer.tokens:,} tokens in {seconds:.0f} s")
        return facts

    def _add(self, writer: ShardWriter, used: list[tuple[int, Item]], width: int) -> None:
        if not used:
            return
        columns = [
            [item.texts[column] if column < len(item.texts) else None for _, item in used] for column in range(width)
        ]
        prompts = self._key["prompts"] or [""] * width
        lengths = self._key.get("lengths", [self._key["max_length"]] * 2)
        tokens = [
            self._tokens(prompt, column, lengths[min(place, 1)])
            for place, (prompt, column) in enumerate(zip(prompts, columns, strict=False))
        ]
        labels = [item.label or 0 for _, item in used] if self._key["labels"] else None
        texts = [[text or "" for text in column] for column in columns]
        writer.add(tokens, labels, [at for at, _ in used], texts)

    def _tokens(self, prompt: str, column: list[str | None], length: int) -> list[np.ndarray]:
        """The token ids of a column's sentences; no tokens for missing ones."""
        texts = [prompt + text for text in column if text is not None]
        tokens = iter(self._tokenizer(texts, length) if texts else ())
        return [NO_TOKENS if text is None else next(tokens) for text in column]


def shard_name(source: int, block: int) -> str:
    """The name of a shard's file."""
    return f"shard-{source:05}-{block:05}"


def read_facts(folder: Folder, name: str) -> dict[str, Any] | None:
    """The facts of a complete shard; None for others."""
    return shared_folder.read_sealed(folder / f"{name}.json")


def shard_of(facts: Mapping[str, Any]) -> Shard:
    """A shard's entry in the manifest."""
    return Shard(**{name: facts[name] for name in Shard._fields})


def _finish(folder: Folder, plan: FolderPlan) -> Manifest | None:
    """Writes the manifest of all shards."""
    with shared_folder.claimed(folder / NAME, patient=True) as is_free:
        if not is_free:
            return None
        if not is_prepared(folder):
            shared_folder.check_unchanged(folder, plan)
            write_manifest(folder, _manifest(folder, plan))
    shared_folder.remove_leftovers(folder)
    return read_manifest(folder)


def _manifest(folder: Folder, plan: FolderPlan) -> Manifest:
    columns = most_columns(plan)
    shards: list[Shard] = []
    sources = []
    histogram = np.zeros((columns, plan.key["max_length"] + 1), np.int64)
    for number, source in enumerate(plan.sources):
        of_source, left_out = [], Counter[str]()
        for block in itertools.count():
            facts = read_facts(folder, shard_name(number, block))
            assert facts is not None
            of_source.append(shard_of(facts))
            left_out.update(facts["left_out"])
            counts = np.array(facts["histogram"], np.int64)
            if len(counts):
                histogram += spread(counts, columns, len(plan.key["special_tokens"]))
            if facts["last"]:
                break
        used = sum(shard.rows for shard in of_source)
        read = sum(shard.source_rows for shard in of_source)
        sources.append({"name": source, "rows": read, "used": used, "left_out": dict(left_out)})
        shards += of_source
    rows = sum(shard.rows for shard in shards)
    token_bytes, labels = plan.key["token_bytes"], plan.key["labels"]
    return Manifest(plan.key, sources, rows, columns, token_bytes, labels, histogram.tolist(), shards)
