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

from simcse_jax.data.corpus.manifest import NAME, Manifest, Shard, corpus_path, write_manifest
from simcse_jax.data.corpus.source_rows import Item, check_used, read_items
from simcse_jax.data.documents import REACH
from simcse_jax.data.examples import expand, open_source
from simcse_jax.data.identity import hash_file, names_in, read_sealed, size_of, stamp_of, write_sealed
from simcse_jax.data.sources import kind_of, same_kind
from simcse_jax.data.tokens import Lengths, Prompts, check_prompts
from simcse_jax.errors import UserError, system_message
from simcse_jax.host import progress
from simcse_jax.host.locks import held
from simcse_jax.host.storage import Folder, is_remote, local_path, replacing_file, write_atomically, writing
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
    sources: list[dict[str, Any]] = []
    for name in expand(data, "--data"):
        source, stamp = open_source(name, columns, positives, labels), stamp_of(name)
        if augment and len(source.chosen) > 1:
            hint = "choose its sentences with --columns anchor=…"
            raise UserError(f"--augment {augment['name']}: {name} has positives of its own; {hint}")
        sentences = 2 if augment or positives in REACH else source.widest()
        sources.append({"name": name, "bytes": stamp.bytes, "written": stamp.written, "sentences": sentences})
        if not mixed and not same_kind(sentences, sources[0]["sentences"]):
            first, kind = sources[0]["name"], kind_of(sources[0]["sentences"])
            raise UserError(
                f"--data: {first} has {kind}, {name} has {kind_of(sentences)}; name sources of one kind, choose the "
                "same columns with --columns, or add --mixed"
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
    numbers = range(len(plan.sources))
    try:
        with held(folder):
            made = {number: shard for number in numbers if (shard := _made(folder, plan, number)) is not None}
            missing = [number for number in numbers if number not in made]
            names = {NAME, *OF_DATASETS, *(name for number in numbers for name in _names(number))}
            if foreign := sorted(name for name in names_in(folder) - names if not name.startswith(".")):
                raise UserError(f"--output {folder}: has other files ({foreign[0]}); choose another folder")
            make_one = functools.partial(make_shard, str(folder), plan, tokenizer)
            for number, (shard, seconds) in zip(missing, _make_all(make_one, missing, num_proc), strict=True):
                made[number] = shard
                progress.write(f"{shard.file}: {shard.rows:,} rows, {shard.tokens:,} tokens in {seconds:.0f} s")
            manifest = Manifest(plan.settings, [made[number] for number in numbers])
            state: dict[str, Any] = {
                "_data_files": [{"filename": shard.file} for shard in manifest.shards],
                "_fingerprint": manifest.fingerprint[:16],
                "_format_columns": None,
                "_format_kwargs": {},
                "_format_type": None,
                "_output_all_columns": False,
                "_split": None,
            }
            for name, content in zip(OF_DATASETS, (state, {}), strict=True):
                write_atomically(folder / name, json.dumps(content) + "\n")
            write_manifest(folder, manifest)
            return manifest
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


def _names(number: int) -> tuple[str, str]:
    """The names of a source's file, and of its facts."""
    return f"data-{number:05}.arrow", f"data-{number:05}.json"


def _made(folder: Folder, plan: Plan, number: int) -> Shard | None:
    """The facts of a source's complete file; refuses one that is another corpus's."""
    facts = read_sealed(folder / _names(number)[1])
    if facts is None:
        return None
    before, now = facts.pop("made_of"), plan.identity(number)
    for field in [field for field in {**before, **now} if before.get(field) != now.get(field)]:
        was = f"{now['name']}: {field} was {before.get(field)!r:.80}, is {now.get(field)!r:.80}"
        raise UserError(f"--output {folder}: is another corpus's: {was}; choose another folder, or remove it")
    shard = Shard(**facts)
    return shard if size_of(folder / shard.file) == shard.bytes else None


def make_shard(folder: str, plan: Plan, tokenizer: Tokenizer, number: int) -> tuple[Shard, float]:
    """Writes a source's file, and then its facts; returns them, and the seconds that it took."""
    started, settings, source = time.monotonic(), plan.settings, plan.sources[number]
    path, facts = (corpus_path(folder) / name for name in _names(number))
    schema, left_out = _schema(settings, plan.columns), Counter[str]()
    histogram = np.zeros((plan.columns, max(settings["max_length"]) + 1), np.int64)
    read, tokens, documents, blank = 0, 0, 0, True
    rows: list[_Row] = []
    with _written(path) as file:
        with pa.ipc.new_stream(file, schema) as stream:
            items = read_items(settings, source["name"], number)
            while chunk := list(itertools.islice(items, CHUNK)):
                for row, (item, sentences) in enumerate(_tokenize(settings, tokenizer, chunk, plan.columns), read):
                    was_blank, blank = blank, item.left_out == "blank"
                    documents += was_blank and not blank
                    if all(map(len, sentences[: len(item.texts)])) and not item.left_out:
                        rows.append(_Row(row, item, sentences))
                        tokens += sum(map(len, sentences))
                    else:  # perhaps a sentence without a character that the tokenizer knows
                        left_out[item.left_out or "blank"] += 1
                read += len(chunk)
                if tokens >= BATCH_TOKENS:
                    stream.write_batch(_batch(schema, rows, histogram))
                    rows, tokens = [], 0
            if rows:
                stream.write_batch(_batch(schema, rows, histogram))
        used, total = int(histogram[0].sum()), int((histogram @ np.arange(histogram.shape[1])).sum())
        check_used(source["name"], settings["positives"], left_out, used, documents)
        if stamp_of(source["name"]) != (source["bytes"], source["written"]):
            raise UserError(f"{source['name']}: was changed while it was read; start again")
        size = file.tell()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    counts = dict(sorted(left_out.items()))
    shard = Shard(
        path.name, source["name"], size, digest, read, used, source["sentences"], total, counts, histogram.tolist()
    )
    write_sealed(facts, {"made_of": plan.identity(number), **shard._asdict()})
    return shard, time.monotonic() - started


@contextlib.contextmanager
def _written(path: Folder) -> Iterator[IO[bytes]]:
    """A file that is renamed, or uploaded, to `path` after the block."""
    if not is_remote(path):
        with writing(path), replacing_file(Path(path)) as file:
            yield file
        return
    with writing(path), tempfile.TemporaryFile() as file:
        yield file
        file.seek(0)
        try:
            with path.open("wb") as stored:
                shutil.copyfileobj(file, stored, 1 << 23)
        except Exception as error:  # of the store's client
            raise UserError(f"{path}: cannot be written: {system_message(error)}") from None


class _Row(NamedTuple):
    number: int  # in its source
    item: Item
    sentences: list[np.ndarray]  # C of token ids


def _tokenize(
    settings: Mapping[str, Any], tokenizer: Tokenizer, items: Sequence[Item], width: int
) -> Iterator[tuple[Item, list[np.ndarray]]]:
    """Rows and the token ids of their sentences; no tokens for columns that a row lacks."""
    columns = []
    for column in range(width):
        prompt = settings["prompts"][column] if settings["prompts"] else ""
        texts = [prompt + item.texts[column] for item in items if column < len(item.texts)]
        tokens = iter(tokenizer(texts, settings["max_length"][min(column, 1)]) if texts else ())
        columns.append([next(tokens) if column < len(item.texts) else NO_TOKENS for item in items])
    for item, *sentences in zip(items, *columns, strict=True):
        yield item, sentences


def _schema(settings: Mapping[str, Any], width: int) -> pa.Schema:
    token = pa.uint16() if settings["vocabulary"] <= 1 << 16 else pa.uint32()
    fields = {"input_ids": pa.list_(pa.list_(token), width), "row": pa.uint32()}
    fields |= {"label": pa.int8()} if settings["labels"] else {}
    return pa.schema(fields | ({"texts": pa.list_(pa.string())} if settings["keep_text"] else {}))


def _batch(schema: pa.Schema, rows: Sequence[_Row], histogram: np.ndarray) -> pa.RecordBatch:
    """A record batch of rows, which are counted in the histogram."""
    sentences = [sentence for row in rows for sentence in row.sentences]
    lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
    for counts, column in zip(histogram, lengths.reshape(len(rows), -1).T, strict=True):
        counts += np.bincount(column, minlength=len(counts))
    kind = schema.field("input_ids").type
    flat = pa.array(np.concatenate(sentences), kind.value_type.value_type)
    ids = pa.ListArray.from_arrays(pa.array(np.cumsum([0, *lengths]), pa.int32()), flat)
    arrays: dict[str, Any] = {
        "input_ids": pa.FixedSizeListArray.from_arrays(ids, kind.list_size),
        "row": [row.number for row in rows],
        "label": [row.item.label or 0 for row in rows],
        "texts": [row.item.texts for row in rows],
    }
    return pa.record_batch([pa.array(arrays[field.name], field.type) for field in schema], schema)
