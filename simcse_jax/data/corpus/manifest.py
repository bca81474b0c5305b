"""The manifest of a prepared corpus, `corpus.json`. It is written last, so a folder that has it is complete."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.data.identity import SEAL, json_hash, size_of, write_sealed
from simcse_jax.data.rows import reported
from simcse_jax.data.tokens import Lengths, Prompts
from simcse_jax.errors import UserError
from simcse_jax.host.storage import Folder, as_path, is_remote, other_format, parse_json
from simcse_jax.host.version import __version__

NAME = "corpus.json"
FORMAT = "simcse_jax corpus 3"
NEGATIVES = 2  # the first column of hard negatives, which rows may lack
REPAIR = "copy it again, or remove it and run the command that prepared the corpus again"


class Shard(NamedTuple):
    """The rows of one source, in an Arrow file of their own."""

    file: str
    source: str
    bytes: int
    sha256: str
    source_rows: int  # including those left out
    rows: int
    columns: int  # of the source
    tokens: int
    left_out: dict[str, int]  # rows by reason
    histogram: list[list[int]]  # (C, L + 1): the sentences of each length, by column; 0 for columns that a row lacks


class Manifest(NamedTuple):
    """A prepared corpus."""

    settings: dict[str, Any]  # everything but the sources that the tokens depend on, see `making.make_plan`
    shards: list[Shard]

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return sum(shard.rows for shard in self.shards)

    @property
    def columns(self) -> int:
        """The sentences of a row."""
        return max(shard.columns for shard in self.shards)

    @property
    def lengths(self) -> Lengths:
        """The lengths in tokens at which sentences were cut."""
        return Lengths(*self.settings["max_length"])

    @property
    def prompts(self) -> tuple[Prompts, ...]:
        """The prompts of all sentences; () if there are none."""
        prompts = self.settings["prompts"]
        return (Prompts(prompts[0], prompts[min(1, len(prompts) - 1)]),) if prompts else ()

    @property
    def lacks_negatives(self) -> bool:
        """Whether rows have fewer hard negatives than others of their source."""
        return any(column[0] for shard in self.shards for column in shard.histogram[NEGATIVES : shard.columns])

    @property
    def fewest(self) -> int:
        """The number of sentences in the row with the fewest."""
        return min(
            next((column for column, counts in enumerate(shard.histogram) if counts[0]), self.columns)
            for shard in self.shards
        )

    def counts(self, columns: int, longest: int) -> np.ndarray:
        """(C, L + 1): the sentences of each length; where a row lacks columns, those of `Prepared.locate`."""
        special, counts = len(self.settings["special_tokens"]), np.zeros((columns, longest + 1), np.int64)
        for shard in self.shards:
            of_shard = np.zeros_like(counts)
            of_shard[:, 0] = shard.rows
            of_shard[: len(shard.histogram), : len(shard.histogram[0])] = shard.histogram
            if columns > 1 and of_shard[1, 0]:  # sentences that are their own positives
                of_shard[1] = of_shard[0]
            lacking = of_shard[NEGATIVES:, 0].copy()
            of_shard[NEGATIVES:, 0] = 0
            of_shard[NEGATIVES:, special] += lacking
            counts += of_shard
        return counts

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the manifest, and through the shards' hashes of every byte of the corpus."""
        return json_hash(self.content())

    def content(self) -> dict[str, Any]:
        """What the file has besides its format."""
        return {"settings": self.settings, "shards": [shard._asdict() for shard in self.shards]}


def fingerprint_of(manifests: Sequence[Manifest]) -> str:
    """That of one corpus, or of several whose rows follow one another."""
    first, *others = [manifest.fingerprint for manifest in manifests]
    return json_hash([first, *others]) if others else first


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
    if content.get("format") != FORMAT:
        raise other_format(where, content, "prepare the corpus again")
    if content.pop(SEAL, None) != json_hash(content):
        raise UserError(f"{where}: was changed since it was written; {REPAIR}")
    return Manifest(content["settings"], [Shard(**shard) for shard in content["shards"]])


def write_manifest(folder: Folder, manifest: Manifest) -> None:
    """Writes the manifest."""
    content = {"format": FORMAT, "versions": {"simcse_jax": __version__}, **manifest.content()}
    write_sealed(folder / NAME, content)


def check_sizes(folder: Folder, shards: Iterable[Shard]) -> None:
    """Refuses files that are missing or have another size; does not read them."""
    for shard in shards:
        if (size := size_of(folder / shard.file)) != shard.bytes:
            problem = "missing" if size is None else f"has {size:,} bytes"
            raise UserError(f"{folder / shard.file}: {problem}, but {NAME} says {shard.bytes:,} bytes; {REPAIR}")
