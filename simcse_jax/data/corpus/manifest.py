"""The manifest of a prepared corpus, `corpus.json`. It is written last, so a folder that has it is complete."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.data.corpus.shards import NEGATIVES, TEXT, Parts, parts
from simcse_jax.data.corpus.shared_folder import json_hash, size_of
from simcse_jax.data.rows import reported
from simcse_jax.data.tokens import Lengths, Prompts
from simcse_jax.errors import UserError
from simcse_jax.host.storage import Folder, as_path, is_remote, other_format, parse_json, write_atomically
from simcse_jax.host.version import __version__

NAME = "corpus.json"
FORMAT = "simcse_jax corpus 2"
REPAIR = "copy it again, or remove it and run the command that prepared the corpus again"


class File(NamedTuple):
    """A file of a shard."""

    name: str
    bytes: int
    sha256: str


class Shard(NamedTuple):
    """A shard's entry in the manifest. Its own `.json`, next to it, also has the lengths of its sentences."""

    file: str
    source: int  # its number in the list of sources
    first: int  # the number of its first row in the source, from 0
    source_rows: int  # the source's rows that it covers, including those left out
    rows: int
    columns: int  # of its source
    tokens: int
    origins: bool
    bytes: int
    sha256: str
    text_bytes: int = 0  # of its text file, if the text was kept
    text_sha256: str = ""

    @property
    def files(self) -> list[File]:
        """Its token file, and its text file if there is one."""
        text = [File(self.file + TEXT, self.text_bytes, self.text_sha256)] if self.text_sha256 else []
        return [File(self.file, self.bytes, self.sha256), *text]

    def parts(self, width: int, labels: bool) -> Parts:
        """Where its parts are, for tokens of `width` bytes."""
        return parts(self.tokens, width, self.rows, self.rows * self.columns, labels, self.origins)


class Manifest(NamedTuple):
    """A prepared corpus."""

    key: dict[str, Any]  # everything the tokens depend on, see `plan.make_plan`
    sources: list[dict[str, Any]]  # name, rows, used, and the number left out by reason
    rows: int
    columns: int
    token_bytes: int  # 2 or 4
    labels: bool
    histogram: list[list[int]]  # the sentences of each length, by column
    shards: list[Shard]

    @property
    def counts(self) -> np.ndarray:
        """(C, L + 1): the sentences of each length, by column; columns that a row lacks count as empty sentences."""
        counts, empty = np.array(self.histogram), len(self.key["special_tokens"])
        if empty:
            counts[NEGATIVES:, empty] += counts[NEGATIVES:, 0]
            counts[NEGATIVES:, 0] = 0
        return counts

    @property
    def lengths(self) -> Lengths:
        """The lengths in tokens at which sentences were cut."""
        return Lengths(*self.key.get("lengths", [self.key["max_length"]] * 2))

    @property
    def prompts(self) -> tuple[Prompts, ...]:
        """The prompts of all sentences; () if there are none."""
        prompts = self.key["prompts"]
        return (Prompts(prompts[0], prompts[min(1, len(prompts) - 1)]),) if prompts else ()

    @property
    def lacking(self) -> list[int]:
        """The columns of hard negatives that are empty in some rows of a source."""
        places = range(NEGATIVES, len(self.histogram))
        return [column for column in places if self.histogram[column][0]] if self.key["special_tokens"] else []

    @property
    def fewest(self) -> int:
        """The number of sentences in the row with the fewest."""
        return min([*(shard.columns for shard in self.shards), *self.lacking])

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest, and through the shards' hashes of every byte of the corpus."""
        return json_hash(self.content())

    def content(self) -> dict[str, Any]:
        """All of it, as the file has it besides its format and fingerprint."""
        return self._asdict() | {"shards": [shard._asdict() for shard in self.shards]}


def spread(counts: np.ndarray, columns: int, empty: int) -> np.ndarray:
    """Widens the length counts of a source with fewer columns to (C, L + 1), see `prepared.Prepared.locate`.

    Args:
      counts: (c, L + 1), c ≤ C.
      empty: the number of tokens of the empty sentence, which fills missing columns.
    """
    missing = np.zeros((columns, counts.shape[1]), np.int64)
    missing[:, empty] = counts[0].sum()
    missing[: len(counts)] = counts
    if len(counts) == 1 < columns:
        missing[1] = counts[0]
    return missing


def joined(manifests: Sequence[Manifest], times: Sequence[float] = ()) -> Manifest:
    """One manifest for several corpora with the same tokenizer, whose rows follow one another.

    `times` is how often each corpus's rows count in the histogram; () for once.
    """
    widest = max(manifests, key=lambda manifest: manifest.columns)  # the first, if several are
    if len(manifests) == 1:
        return widest
    columns, empty = widest.columns, len(widest.key["special_tokens"])
    longest = max(manifest.key["max_length"] for manifest in manifests)
    histogram = np.zeros((columns, longest + 1), np.float64 if times else np.int64)
    for manifest, count in zip(manifests, times or [1] * len(manifests), strict=True):
        counts = np.array(manifest.histogram, np.int64)
        histogram[:, : counts.shape[1]] += count * spread(counts, columns, empty)
    same = all(manifest.prompts == widest.prompts for manifest in manifests)
    return widest._replace(
        key=widest.key
        | {"sources": [source for manifest in manifests for source in manifest.key["sources"]], "max_length": longest}
        | ({} if same else {"prompts": []}),
        sources=[source for manifest in manifests for source in manifest.sources],
        rows=sum(manifest.rows for manifest in manifests),
        histogram=histogram.tolist(),
        shards=[shard for manifest in manifests for shard in manifest.shards],
    )


def corpus_path(name: str) -> Folder:
    """The folder of a corpus, on a disk or in a bucket, whether it exists or not."""
    return as_path(name.rstrip("/") if is_remote(name) else name)


def is_prepared(folder: Folder) -> bool:
    """Whether a folder is a prepared corpus."""
    with reported(folder):
        return (folder / NAME).is_file()


def read_manifest(folder: Folder) -> Manifest:
    """Reads the manifest; refuses one that is missing, damaged, edited or in another format."""
    where = f"{folder / NAME}"
    with reported(where):
        content = parse_json((folder / NAME).read_text(encoding="utf-8"), where)
    if content.pop("format", None) != FORMAT:
        raise other_format(where, content, "prepare the corpus again")
    content.pop("versions")
    if content.pop("sha256", None) != json_hash(content):
        raise UserError(f"{where}: was changed since it was written; {REPAIR}")
    return Manifest(**content | {"shards": [Shard(**shard) for shard in content["shards"]]})


def write_manifest(folder: Folder, manifest: Manifest) -> None:
    """Writes the manifest."""
    about = {"format": FORMAT, "versions": {"simcse_jax": __version__}, "sha256": manifest.fingerprint}
    write_atomically(folder / NAME, json.dumps(about | manifest.content(), indent=1) + "\n")


def is_whole(folder: Folder, files: Iterable[File]) -> bool:
    """Whether all files exist and have the right size."""
    return all(size_of(folder / file.name) == file.bytes for file in files)


def check_sizes(folder: Folder, files: Iterable[File]) -> None:
    """Refuses files that are missing or have another size; does not read them."""
    for file in files:
        path = folder / file.name
        size = size_of(path)
        if size != file.bytes:
            problem = "missing" if size is None else f"has {size:,} bytes"
            raise UserError(
                f"{path}: {problem}, but {NAME} says {file.bytes:,} bytes; copy it again, or run the command that "
                "prepared the corpus again"
            )
