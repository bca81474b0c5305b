"""Makes a prepared corpus: for each source an Arrow file, as `datasets` saves them, and at last the manifest.

A file's facts, `data-00000.json`, are written after it, so a file that has them is complete. A command that was killed
makes only the others when it is given again.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import multiprocessing
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa

from simcse_jax.data.corpus.manifest import NAME, Manifest, Shard, corpus_path, is_prepared, write_manifest
from simcse_jax.data.corpus.source_rows import Item, check_used, read_items
from simcse_jax.data.documents import REACH
from simcse_jax.data.examples import expand, open_source
from simcse_jax.data.identity import hash_file, names_in, read_sealed, size_of, stamp_of, write_sealed
from simcse_jax.data.sources import kind_of, same_kind
from simcse_jax.data.tokens import Lengths, Prompts, check_prompts
from simcse_jax.errors import UserError, system_message
from simcse_jax.host import progress
from simcse_jax.host.locks import held
from simcse_jax.host.storage import Folder, is_remote, local_path, replacing_file, write_atomically
from simcse_jax.huggingface.tokenizer import CHUNK, Tokenizer

BATCH_TOKENS = 1 << 20  # of a record batch, which is held in memory
NO_TOKENS = np.empty(0, np.int32)  # of a column that a row lacks
OF_DATASETS = ("state.json", "dataset_info.json")  # for `datasets.load_from_disk`


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


class Plan(NamedTuple):
    """What a corpus is made of."""

    settings: dict[str, Any]  # everything but the sources that the tokens depend on
    sources: list[dict[str, Any]]  # the name of each, its columns, and its `Stamp`

    @property
    def columns(self) -> int:
        """The sentences of a row."""
        return max(source["sentences"] for source in self.sources)

    def identity(self, number: int) -> dict[str, Any]:
        """All that the file of a source depends on."""
        return {**self.settings, "width": self.columns, **self.sources[number]}


def make_plan(data: Sequence[str], tokenizer: Tokenizer, vocabulary: int, preparation: Preparation) -> Plan:
    """Examines all sources, reading only their first rows; with lists of hard negatives, all rows, to find the longest.

    Args:
      data: sources as in `data.train`, each file of a folder or of a pattern being one.
      vocabulary: the number of token ids.
    """
    max_length, columns, positives, labels, mixed, prompts, augment, seed, keep_text = preparation
    sources = []
    for name in expand(data, "--data"):
        source, stamp = open_source(name, columns, positives, labels), stamp_of(name)
        if augment and len(source.chosen) > 1:
            hint = "choose its sentences with --columns anchor=…"
            raise UserError(f"--augment {augment['name']}: {name} has positives of its own; {hint}")
        found = 2 if augment or positives in REACH else source.widest()
        sources.append({"name": name, "bytes": stamp.bytes, "written": stamp.written, "sentences": found})
        if not mixed and not same_kind(found, sources[0]["sentences"]):
            first, kind = sources[0]["name"], kind_of(sources[0]["sentences"])
            raise UserError(
                f"--data: {first} has {kind}, {name} has {kind_of(found)}; name sources of one kind, choose the same "
                "columns with --columns, or add --mixed"
            )
    width = max(source["sentences"] for source in sources)
    lengths = Lengths(max_length, max_length) if isinstance(max_length, int) else max_length
    if not isinstance(max_length, int) and width == 1:
        raise UserError(f"--max-length: two lengths, but {sources[0]['name']} has one column of sentences; give one")
    if len(prompts) not in (0, 1, min(width, 3), width):
        raise UserError(f"--prompt: {len(prompts)} were given for {width} columns; give one, or one for each")
    prompts = [*prompts, *[prompts[-1]] * (width - len(prompts))] if any(prompts) else []
    check_prompts(tokenizer, [Prompts(prompts[0], other) for other in prompts[1:] or prompts], lengths, "--prompt")
    lexicon = augment and augment.get("lexicon")
    settings = {
        "tokenizer": hashlib.sha256(tokenizer.content()).hexdigest(),
        "special_tokens": tokenizer([""], max(lengths))[0].tolist(),
        "vocabulary": vocabulary,
        "max_length": lengths,
        "columns": {role: name for role, name in sorted(columns.items()) if name},
        "positives": positives,
        "labels": labels,
        "prompts": prompts,
        "augment": {**augment, "lexicon_sha256": hash_file(local_path(lexicon)) if lexicon else ""} if augment else {},
        "seed": seed if augment or positives == "next_3_sentences" else 0,
        "keep_text": keep_text,
    }
    return Plan(json.loads(json.dumps(settings)), json.loads(json.dumps(sources)))


def make(folder: Folder, plan: Plan, tokenizer: Tokenizer, num_proc: int = 1) -> Manifest:
    """Makes the files that are missing or cut, each in one of `num_proc` processes, and then the manifest."""
    try:
        with held(folder):
            _check_folder(folder, plan)
            missing = [number for number in range(len(plan.sources)) if _made(folder, plan, number) is None]
            for shard, seconds in _make_all(
                functools.partial(make_shard, str(folder), plan, tokenizer), missing, num_proc
            ):
                progress.write(f"{shard.file}: {shard.rows:,} rows, {shard.tokens:,} tokens in {seconds:.0f} s")
            return _finish(folder, plan)
    except UserError:
        if not is_remote(folder):
            with contextlib.suppress(OSError):  # it is not empty
                Path(folder).rmdir()
        raise


def _make_all(make_one: Any, numbers: Sequence[int], num_proc: int) -> Iterator[tuple[Shard, float]]:
    if num_proc == 1 or len(numbers) < 2:
        yield from map(make_one, numbers)
        return
    workers, context = min(num_proc, len(numbers)), multiprocessing.get_context("spawn")  # JAX's threads forbid forks
    with ProcessPoolExecutor(workers, context, initializer=_begin_child) as pool:
        try:
            yield from pool.map(make_one, numbers)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin_child() -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are enough

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def shard_name(number: int) -> str:
    """The name of a source's file."""
    return f"data-{number:05}.arrow"


def _facts(folder: Folder, number: int) -> Folder:
    return folder / f"data-{number:05}.json"


def _made(folder: Folder, plan: Plan, number: int) -> Shard | None:
    """The facts of a source's complete file; refuses one that is another corpus's."""
    facts = read_sealed(_facts(folder, number))
    if facts is None:
        return None
    before, now = facts.pop("made_of"), plan.identity(number)
    for field in [field for field in {**before, **now} if before.get(field) != now.get(field)]:
        was = f"{now['name']}: {field} was {before.get(field)!r:.80}, is {now.get(field)!r:.80}"
        raise UserError(f"--output {folder}: is another corpus's: {was}; choose another folder, or remove it")
    shard = Shard(**facts)
    return shard if size_of(folder / shard.file) == shard.bytes else None


def _check_folder(folder: Folder, plan: Plan) -> None:
    """Refuses a folder that has other files, or those of more sources."""
    own = {NAME, *OF_DATASETS}
    for number in range(len(plan.sources)):
        own |= {shard_name(number), _facts(folder, number).name}
        _made(folder, plan, number)
    if foreign := sorted(name for name in names_in(folder) - own if not name.startswith(".")):
        whose = "is another corpus's: " if is_prepared(folder) else ""
        raise UserError(f"--output {folder}: {whose}has other files ({foreign[0]}); choose another folder")


def make_shard(folder: str, plan: Plan, tokenizer: Tokenizer, number: int) -> tuple[Shard, float]:
    """Writes a source's file, and then its facts; returns them, and the seconds that it took."""
    started, place, source = time.monotonic(), corpus_path(folder), plan.sources[number]
    writer = _Writer(plan, source["sentences"], tokenizer)
    path, rows, documents, blank = place / shard_name(number), 0, 0, True
    with _written(path) as file:
        with pa.ipc.new_stream(file, writer.schema) as stream:
            items = read_items(plan.settings, source["name"], number)
            while chunk := list(itertools.islice(items, CHUNK)):
                for batch in writer.add(chunk, rows):
                    stream.write_batch(batch)
                rows += len(chunk)
                for item in chunk:
                    was_blank, blank = blank, item.left_out == "blank"
                    documents += was_blank and not blank
            for batch in writer.flush():
                stream.write_batch(batch)
        check_used(source["name"], plan.settings["positives"], writer.left_out, writer.rows, documents)
        if stamp_of(source["name"]) != (source["bytes"], source["written"]):
            raise UserError(f"{source['name']}: was changed while it was read; start again")
        size = file.tell()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    shard = Shard(
        path.name, source["name"], size, digest, rows, writer.rows, source["sentences"], writer.tokens,
        dict(sorted(writer.left_out.items())), writer.histogram.tolist(),
    )  # fmt: skip
    write_sealed(_facts(place, number), {"made_of": plan.identity(number), **shard._asdict()})
    return shard, time.monotonic() - started


@contextlib.contextmanager
def _written(path: Folder) -> Iterator[IO[bytes]]:
    """A file that is renamed, or uploaded, to `path` after the block."""
    try:
        if not is_remote(path):
            with replacing_file(Path(path)) as file:
                yield file
            return
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            with path.open("wb") as stored:
                shutil.copyfileobj(file, stored, 1 << 23)
    except UserError:
        raise
    except Exception as error:  # an OSError, or an error of the store's client
        raise UserError(f"{path}: cannot be written: {system_message(error)}") from None


class _Writer:
    """Makes record batches of rows."""

    def __init__(self, plan: Plan, columns: int, tokenizer: Tokenizer):
        """For the rows of a source with so many columns."""
        self._settings, self._width, self._columns, self._tokenizer = plan.settings, plan.columns, columns, tokenizer
        self._token = np.dtype(np.uint16 if plan.settings["vocabulary"] <= 1 << 16 else np.uint32)
        fields = {"input_ids": pa.list_(pa.list_(pa.from_numpy_dtype(self._token)), self._width), "row": pa.uint32()}
        fields |= {"label": pa.int8()} if plan.settings["labels"] else {}
        fields |= {"texts": pa.list_(pa.string())} if plan.settings["keep_text"] else {}
        self.schema = pa.schema(fields)
        self._pending: list[pa.RecordBatch] = []
        self._held = self.rows = self.tokens = 0
        self.left_out = Counter[str]()
        self.histogram = np.zeros((self._width, max(plan.settings["max_length"]) + 1), np.int64)

    def add(self, items: Sequence[Item], first: int) -> Iterator[pa.RecordBatch]:
        """Tokenizes rows, `first` being the first one's number; yields a batch if it is full."""
        columns = [self._tokens(items, column) for column in range(self._columns)]
        columns += [[NO_TOKENS] * len(items)] * (self._width - self._columns)
        used = []
        for row, item in enumerate(items):
            blank = not all(len(columns[column][row]) for column in range(len(item.texts)))  # no known character
            if why := item.left_out or "blank" * blank:
                self.left_out[why] += 1
            else:
                used.append(row)
        if not used:
            return
        sentences = [column[row] for row in used for column in columns]
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        ends = pa.array(np.cumsum([0, *lengths]), pa.int32())
        tokens = pa.ListArray.from_arrays(ends, np.concatenate(sentences).astype(self._token))
        arrays: dict[str, Any] = {
            "input_ids": pa.FixedSizeListArray.from_arrays(tokens, self._width),
            "row": [first + row for row in used],
            "label": [items[row].label or 0 for row in used],
            "texts": [items[row].texts for row in used],
        }
        self._pending.append(
            pa.record_batch([pa.array(arrays[field.name], field.type) for field in self.schema], self.schema)
        )
        for counts, column in zip(self.histogram, lengths.reshape(len(used), self._width).T, strict=True):
            counts += np.bincount(column, minlength=len(counts))
        self.rows += len(used)
        self.tokens += int(lengths.sum())
        self._held += int(lengths.sum())
        if self._held >= BATCH_TOKENS:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows that are left as a batch."""
        if self._pending:
            yield pa.Table.from_batches(self._pending).combine_chunks().to_batches()[0]
            self._pending, self._held = [], 0

    def _tokens(self, items: Sequence[Item], column: int) -> list[np.ndarray]:
        """The token ids of a column's sentences; no tokens for missing ones."""
        prompts, length = self._settings["prompts"], self._settings["max_length"][min(column, 1)]
        prompt = prompts[column] if prompts else ""
        texts = [prompt + item.texts[column] for item in items if column < len(item.texts)]
        tokens = iter(self._tokenizer(texts, length) if texts else ())
        return [next(tokens) if column < len(item.texts) else NO_TOKENS for item in items]


def _finish(folder: Folder, plan: Plan) -> Manifest:
    """Writes the manifest of all files, and what `datasets` needs."""
    shards = [_made(folder, plan, number) for number in range(len(plan.sources))]
    manifest = Manifest(plan.settings, [shard for shard in shards if shard is not None])
    state = {"_data_files": [{"filename": shard.file} for shard in manifest.shards], "_split": None}
    state |= {"_fingerprint": manifest.fingerprint[:16], "_format_columns": None, "_format_kwargs": {}}
    state |= {"_format_type": None, "_output_all_columns": False}
    for name, content in zip(OF_DATASETS, (state, {}), strict=True):
        write_atomically(folder / name, json.dumps(content) + "\n")
    write_manifest(folder, manifest)
    return manifest
