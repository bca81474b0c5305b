"""The sentences of a file, all of them and as they stand: row n of the file is sentence n."""

from collections.abc import Sequence
from pathlib import Path

from simcse_jax.data.columns import USUAL_NAMES
from simcse_jax.data.sources import MISSING, READERS
from simcse_jax.errors import UserError


def read_sentences(file: str | Path, column: str | None = None) -> list[str]:
    """Reads a .txt file (a sentence a line) or one column of a .csv, .tsv, .jsonl or .parquet file.

    A blank row is the empty sentence, so that rows keep their numbers.

    Args:
      file: what to read.
      column: None takes one with a usual name (`sentence`, `text`, `sent0`, `anchor`), or the only one.

    Raises:
      UserError: in one line, naming the file and the row.
    """
    path = Path(file).expanduser()
    if not path.is_file():
        raise UserError(f"{file}: {'a folder' if path.is_dir() else 'no such file'}; give a file of sentences")
    if path.suffix.lower() not in READERS:
        raise UserError(f"{file}: unknown kind of file {path.suffix!r}; known are {', '.join(READERS)}")
    names, rows = READERS[path.suffix.lower()](path)
    chosen = _choose(list(names), column, str(file))
    sentences = []
    for row in rows:
        sentence = row.fields[chosen]
        if sentence is MISSING:
            raise UserError(f"{row.where}: the field {names[chosen]!r} is missing")
        if sentence is not None and not isinstance(sentence, str):
            raise UserError(f"{row.where}: the field {names[chosen]!r} holds {sentence!r:.60}, which is no text")
        sentences.append(sentence or "")
    if not any(sentence.strip() for sentence in sentences):
        raise UserError(f"{file}: holds no sentences")
    return sentences


def check_sentences(sentences: Sequence[str], what: str = "sentence") -> list[str]:
    """The sentences as a list.

    Raises:
      UserError: naming the first that is not a string, or holds what is no character.
    """
    if isinstance(sentences, str | bytes) or not hasattr(sentences, "__iter__"):
        raise UserError(f"{sentences!r:.60}: not a list of strings")
    checked = list(sentences)
    for row, sentence in enumerate(checked):
        if not isinstance(sentence, str):
            raise UserError(f"{what} {row} is {sentence!r:.60}, not a string")
        if not sentence.isascii():
            try:
                sentence.encode()
            except UnicodeEncodeError:
                raise UserError(f"{what} {row} holds half a surrogate pair, which is no character") from None
    return checked


def _choose(names: list[str], column: str | None, where: str) -> int:
    if column is not None:
        if column not in names:
            raise UserError(f"{where}: no column {column!r}; it has {', '.join(names)}")
        return names.index(column)
    usual = next((name for name in ("sentence", "text", *USUAL_NAMES["anchor"]) if name in names), None)
    if usual is None and len(names) > 1:
        raise UserError(f"{where}: which column? It has {', '.join(names)}")
    return names.index(usual) if usual else 0
