"""Finds tokenizers that would fail, hang or silently give wrong ids, before they are used."""

import contextlib
import glob
import importlib.util
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcse_jax.errors import UserError
from simcse_jax.host.storage import read_json
from simcse_jax.huggingface.tokenizer_rules import SPECIAL_TOKENS
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.model_types import AFTER_PADDING, MODEL_TYPES, ROTARY

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json")  # and SentencePiece's *.model
MOST_GROWTH = 10_000
# How many characters these can make of one, at most; a Replace states it, the others make no more than one.
GROWTH = {"NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Precompiled": 18, "BertNormalizer": 6}
GROWTH |= {"Lowercase": 3, "ByteLevel": 4}
UNKNOWN = "\u0378 \ue000 \U0001f3b8"  # characters that few vocabularies have
PAD_TOKENS = {special["pad"] for special in SPECIAL_TOKENS.values()}


_redirecting = threading.Lock()  # the descriptor is the whole process's


def is_failure(error: BaseException) -> bool:
    """Whether an error is one of a library's, and not an interruption: a Rust panic is not an `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


@contextlib.contextmanager
def panics_in_a_line() -> Iterator[None]:
    """Hides what Rust prints when it panics: the exception says the same. Anything else is printed."""
    with _redirecting, tempfile.TemporaryFile() as printed:
        try:
            before = os.dup(2)
        except OSError:  # there is no standard error
            yield
            return
        panicked = False
        os.dup2(printed.fileno(), 2)
        try:
            yield
        except BaseException as error:
            panicked = type(error).__name__ == "PanicException"
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)
            printed.seek(0)
            if not panicked:
                os.write(2, printed.read())


def check_has_vocabulary(folder: Path) -> None:
    """Refuses a folder without a vocabulary: transformers would make an empty tokenizer."""
    files = {name for name in (*VOCABULARIES, "merges.txt") if (folder / name).is_file()}
    compiled = sorted(glob.glob("*.model", root_dir=folder))  # of macOS's hidden files, none
    if not compiled and not files.intersection(VOCABULARIES):
        raise UserError(
            f"{folder}: no vocabulary; it must have tokenizer.json, vocab.txt, or vocab.json and merges.txt"
        )
    if not files.intersection(VOCABULARIES) and importlib.util.find_spec("sentencepiece") is None:
        raise UserError(
            f"{folder / compiled[0]}: the package sentencepiece, which reads it, is not installed; install it "
            "and protobuf, or save the tokenizer with transformers where they are: tokenizer.json is enough"
        )
    if files == {"vocab.json"}:
        raise UserError(f"{folder}: has vocab.json, but not its merges.txt")


def stated_tokens(folder: Path) -> set[str] | None:
    """All tokens that the files of a folder have; None where only a library can read them.

    Refuses a `tokenizer.json` that would make a short text huge, or that depends on chance.
    """
    if not any((folder / name).is_file() for name in VOCABULARIES):
        return None
    tokens: set[str] = set()
    path = folder / "tokenizer.json"
    if path.is_file():
        whole = read_json(path)
        if (most := growth(whole.get("normalizer"))) > MOST_GROWTH:
            raise UserError(f"{path}: its normalizer can make {most:.0e} characters of one; {MOST_GROWTH} are allowed")
        model = whole.get("model")
        if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict | list):
            raise UserError(f"{path}: has no 'model' with a 'vocab'")
        for field in _sides(folder):
            if is_left(whole.get(field)):
                raise UserError(f"{path}: the direction of {field} is Left; only Right is supported")
        if model.get("dropout"):
            raise UserError(
                f"{path}: its model drops merges at random (dropout {model['dropout']!r:.20}); set it to null"
            )
        pairs = model["vocab"]  # a dictionary, or Unigram's list of pairs
        tokens |= set(pairs) if isinstance(pairs, dict) else {str(pair[0]) for pair in pairs if isinstance(pair, list)}
        added = whole.get("added_tokens")
        tokens |= {_content(token) for token in added} if isinstance(added, list) else set()
    elif (folder / "vocab.txt").is_file():
        try:
            tokens |= {line.rstrip() for line in (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")}
        except (OSError, ValueError) as error:
            raise UserError(f"{folder / 'vocab.txt'}: cannot be read: {error}") from None
    else:
        tokens |= set(read_json(folder / "vocab.json"))
    if (folder / "added_tokens.json").is_file():
        added = read_json(folder / "added_tokens.json")
        if not all(type(number) is int and number >= 0 for number in added.values()):
            raise UserError(f"{folder / 'added_tokens.json'}: must have a whole number for each token")
        tokens |= set(added)
    config = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    decoder = config.get("added_tokens_decoder")
    return tokens | ({_content(token) for token in decoder.values()} if isinstance(decoder, dict) else set())


def is_left(side: Any) -> bool:
    """Whether the truncation or the padding of a `tokenizer.json` is at the left."""
    return isinstance(side, dict) and str(side.get("direction")).lower() == "left"


def _sides(folder: Path) -> tuple[str, ...]:
    """The settings that must be on the right. With rotary positions, padding may be on either side."""
    model_type = read_json(folder / "config.json").get("model_type") if (folder / "config.json").is_file() else None
    kind = MODEL_TYPES.get(model_type) if isinstance(model_type, str) else None
    is_rotary = kind is not None and kind.parts.get("positions") == ROTARY
    return ("truncation",) if is_rotary else ("truncation", "padding")


def check_sides(folder: Path) -> None:
    """Refuses truncation at the left in `tokenizer_config.json`, and padding there where positions count it."""
    path = folder / "tokenizer_config.json"
    config = read_json(path) if path.is_file() else {}
    for field in (f"{side}_side" for side in _sides(folder)):
        if config.get(field) not in (None, "right"):
            raise UserError(f"{path}: {field} is {config[field]!r:.60}; only 'right' is supported")


def growth(normalizer: Any) -> float:
    """The most characters that a normalizer of a `tokenizer.json` can make of one, or more than that."""
    total, pending = 1.0, [normalizer]
    while pending:
        part = pending.pop()
        if isinstance(part, list):
            pending += part
        elif isinstance(part, dict):
            pending.append(part.get("normalizers"))
            total *= _own_growth(part)
    return total


def _own_growth(part: dict[str, Any]) -> float:
    added = part.get("content", part.get("prepend"))
    if not isinstance(added, str):
        return GROWTH.get(str(part.get("type")), 1)
    pattern = part.get("pattern")
    replaced = pattern.get("String") if isinstance(pattern, dict) else pattern
    # A regular expression can match nothing, before each character.
    return max(1.0, len(added) / len(replaced)) if isinstance(replaced, str) and replaced else 1.0 + len(added)


def _content(token: Any) -> str:
    return str(token.get("content") if isinstance(token, dict) else token)


def vocabulary(backend: "Backend") -> dict[str, int]:
    """The ids of all tokens that a text can have: all but the empty one, which a blank line of `vocab.txt` makes."""
    return {token: number for token, number in backend.get_vocab(with_added_tokens=True).items() if token}


def check_backend(backend: "Backend", stated: set[str] | None, where: str) -> None:
    """Refuses a tokenizer that has no words, or fails for a new word."""
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    if not vocabulary(backend).keys() - special:
        raise UserError(f"{where}: its vocabulary has no words")
    ends = backend.encode("").tokens
    unknown = getattr(backend.model, "unk_token", None)
    for token in [*ends, *([unknown] if unknown else [])]:
        if backend.token_to_id(token) is None or (stated is not None and token not in stated):
            raise UserError(f"{where}: its vocabulary has no {token}, which the tokenizer needs")
    backend.encode(UNKNOWN)


def check_ids(backend: "Backend", config: EncoderConfig, where: str) -> None:
    """Refuses the tokenizer of another model: no tokens at the ends, ids beyond the table, or another padding."""
    ends = backend.encode("").ids
    if not ends:
        cure = "set add_eos_token to true in tokenizer_config.json, or name [CLS] and [SEP] in its post_processor"
        raise UserError(f"{where}: its tokenizer puts no tokens at the ends of a sentence; {cure}")
    largest = max([*vocabulary(backend).values(), *ends])
    if largest >= config.vocab_size:
        raise UserError(f"{where}: its tokenizer has token {largest}, its weights only {config.vocab_size} rows")
    if len(ends) >= config.max_length:
        raise UserError(f"{where}: its tokenizer adds {len(ends)} tokens to a sentence of at most {config.max_length}")
    # The positions of these models begin after the padding; the others' mask alone hides it.
    pads = {token: number for token in PAD_TOKENS if (number := backend.token_to_id(token)) is not None}
    if config.positions == AFTER_PADDING and config.pad_token_id not in pads.values():
        pad = " and ".join(f"{token} is token {number}" for token, number in sorted(pads.items())) or "has no padding"
        raise UserError(f"{where}: a tokenizer of another model: {pad}, in config.json it is {config.pad_token_id}")
    if 2 * largest < config.vocab_size:  # a few rows more are usual, for the sake of speed
        problem = f"its last token is {largest}, its weights have {config.vocab_size} rows"
        raise UserError(f"{where}: a vocabulary that was cut short, or another model's: {problem}")
