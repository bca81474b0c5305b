"""The pairs to mine hard negatives for, read from a file, and all positives of each anchor."""

import array
import hashlib
import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from simcse_jax.data.columns import choose_columns, only_sentences, warn_of_values
from simcse_jax.data.files import READERS, files_of, read_parquet
from simcse_jax.data.identity import hash_file
from simcse_jax.data.row_lists import split_positives
from simcse_jax.data.rows import MISSING, read_text
from simcse_jax.errors import UserError
from simcse_jax.host.storage import local_path

ROWS = ("anchor_row", "positive_row")  # optional columns of row numbers in the corpus
LONGEST = 19  # numbers with fewer digits fit 64 bits


class Pair(NamedTuple):
    """A query and its positive."""

    row: int  # of the file, from 0; each positive in a list counts as a row
    anchor: str
    positive: str
    own_rows: tuple[int, ...] = ()  # the corpus's rows of the anchor and the positive, if the file names them


class PairFile:
    """A file of anchors and positives; no other columns are read, except row numbers."""

    def __init__(self, name: str, columns: Mapping[str, str]):
        """Chooses the columns: the mapped ones, or those with usual names."""
        self.path = local_path(name)
        suffix = self.path.suffix.lower()
        if not self.path.is_file():
            raise UserError(f"--pairs {name}: no such file")
        if suffix not in READERS or suffix == ".txt":
            raise UserError(f"--pairs {name}: must be a .csv, .tsv, .jsonl or .parquet file with anchors and positives")
        names, _ = READERS[suffix](self.path)
        sentences = [name for name in names if name not in ROWS]  # else the order could choose numbers as texts
        chosen = choose_columns(sentences, columns, f"--pairs {name}")
        places = chosen.places[:2]
        if len(places) < 2:
            raise UserError(f"--pairs {name}: one column of sentences; mining needs pairs: --columns positive=NAME")
        self._wanted = [sentences[place] for place in places] + [row_name for row_name in ROWS if row_name in names]
        self._suffix, self._chosen = suffix, chosen
        self.has_rows = "positive_row" in names
        if not any(columns.values()):
            warn_of_values(
                [other for other in names if other not in self._wanted],
                f"--pairs {name}: ",
                "leave out pairs that are not",
            )

    def read(self) -> Iterator[Pair | None]:
        """The pairs; None for a row with a blank sentence."""
        if self._suffix == ".parquet":
            names, rows = read_parquet(self.path, self._wanted)
        else:
            names, rows = READERS[self._suffix](self.path)
        places = [names.index(name) for name in self._wanted]
        rows = only_sentences(rows, self._chosen._replace(places=places[:2]), names, str(self.path))
        rows = split_positives(rows, names, places[1], *([names.index(ROWS[1])] if self.has_rows else []))
        for number, row in enumerate(rows):
            fields = [f"{row.where}: the field {name!r}" for name in self._wanted]
            values = [row.fields[place] for place in places]
            anchor, positive = (read_text(value, field) for value, field in zip(values[:2], fields, strict=False))
            if not anchor or not positive:
                yield None
                continue
            own_rows = tuple(_row(value, field) for value, field in zip(values[2:], fields[2:], strict=True))
            yield Pair(number, anchor, positive, own_rows)


class PairFiles:
    """The pairs of all files of a name (`data.files.files_of`), one after the other."""

    def __init__(self, name: str, columns: Mapping[str, str]):
        """Checks all files, see `PairFile`."""
        self.name = name
        self._files = [PairFile(file, columns) for file in files_of(name)]
        first, *rest = self._files
        self.has_rows = first.has_rows
        for file in rest:
            if file.has_rows != self.has_rows:
                raise UserError(f"--pairs {name}: {file.path} and {first.path}: the column {ROWS[1]} is in one alone")

    def read(self, first: int = 0) -> Iterator[Pair | None]:
        """The pairs from a row on, which is counted over all files; None for a row with a blank sentence."""
        rows = itertools.chain.from_iterable(file.read() for file in self._files)
        for number, pair in itertools.islice(enumerate(rows), first, None):
            yield pair if pair is None else pair._replace(row=number)

    def fingerprint(self) -> str:
        """SHA-256 of the contents; that of one file alone is its own."""
        hashes = [hash_file(file.path) for file in self._files]
        return hashes[0] if len(hashes) == 1 else hashlib.sha256(repr(hashes).encode()).hexdigest()


def _row(value: object, field: str) -> int:
    if value is MISSING:
        raise UserError(f"{field} is missing; give it in every line, or in none")
    if isinstance(value, str) and value.strip().isdecimal() and len(value.strip()) < LONGEST:
        value = int(value)
    if type(value) is not int or not 0 <= value < 10 ** (LONGEST - 1):
        raise UserError(f"{field} holds {value if value is None else f'{value!r:.60}'}, not the number of a row")
    return value


class Positives:
    """All positives of every anchor, as hashes: 24 bytes a pair, or 48 if the pairs name rows of both."""

    def __init__(self, pairs: Iterator[Pair | None]):
        """Reads all pairs once."""
        self.rows = self.pairs = 0
        notes = array.array("q")
        for pair in pairs:
            self.rows += 1
            if pair is not None:
                self.pairs += 1
                for row in pair.own_rows or (-1,):
                    notes.extend((text_hash(pair.anchor), text_hash(pair.positive), row))
        table = np.array(notes, np.int64).reshape(-1, 3)
        self._anchors, self._positives, self._rows = table[np.argsort(table[:, 0])].T.copy()

    def named(self) -> Int64[np.ndarray, " n"]:
        """The distinct corpus rows that the pairs name, ascending."""
        return np.unique(self._rows[self._rows >= 0])

    def of(self, anchor: str) -> tuple[set[int], set[int]]:
        """The hashes of an anchor's positives, and the corpus rows named for the anchor or these."""
        number = text_hash(anchor)
        own = slice(np.searchsorted(self._anchors, number), np.searchsorted(self._anchors, number, side="right"))
        return set(self._positives[own].tolist()), set(self._rows[own].tolist()) - {-1}


def text_hash(text: str) -> int:
    """A hash that ignores case and white space: texts that differ only in these are not negatives of each other."""
    words = " ".join(text.split()).casefold()
    return int.from_bytes(hashlib.blake2b(words.encode(), digest_size=8).digest(), "big", signed=True)
