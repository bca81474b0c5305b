"""Text to token ids, with the `tokenizers` library.

A folder's `tokenizer.json` is read as it is, with the few settings of `tokenizer_config.json` that transformers puts
above it; importing transformers takes seconds. It reads a folder without that file. The result is saved with our
models, whose `tokenizer.json` is complete.
"""

import contextlib
import functools
import glob
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from simcse_jax.errors import UserError, reason
from simcse_jax.host.storage import read_json
from simcse_jax.huggingface.sentence_transformers import transformer_fields
from simcse_jax.huggingface.template import MASK_TOKENS, add_end_token, add_template, make_template, read_template
from simcse_jax.models.config import EncoderConfig, Template

if TYPE_CHECKING:
    from tokenizers import Encoding
    from tokenizers import Tokenizer as Backend

# A sentence, or two texts that a cross-encoder reads together.
Text: TypeAlias = str | tuple[str, str]
MARKER = "simcse_jax.json"  # in the folders that we write: the pooler, and whether there is a head

CHUNK = 8192  # sentences tokenized at a time

# A tokenizer's possible files, which are copied with a trained model.
FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt"),
)
WORDS_FILE = "whitespacetokenizer_config.json"  # of word vectors: `word_tokenizer.Vocabulary`
VOCABULARIES = (("vocab.txt",), ("vocab.json", "merges.txt"))  # and SentencePiece's *.model
LARGEST = 1 << 28  # bytes of a file, several times the largest published one's
NAMED = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
# The classes whose settings count, "" for a folder that names none: transformers takes others as the file is, and any
# class of a ModernBERT.
WITH_SETTINGS = {"", *(f"{name}Tokenizer" for name in ("Bert", "DistilBert", "Electra", "MPNet", "Roberta", "Bart"))}
UNKNOWN = "\u0378 \ue000 \U0001f3b8"  # characters that few vocabularies have

_redirecting = threading.Lock()  # the descriptor is the whole process's


class Tokenizer:
    """Sentences to token ids with the model's special tokens and its template, cut at `max_length`; or pairs of texts.

    The texts of a pair are cut together. The tokens of a `typed` one have types, too: 1 for those of a pair's second
    text, otherwise 0.
    """

    template: Template | None = None  # around every sentence; None: special tokens alone
    mask_token: str | None = None
    typed = False

    def __init__(self, folder: Path, config: EncoderConfig, template: str = "", typed: bool = False):
        """Reads a model folder's tokenizer, and gives it a template by its text, unless that is empty."""
        self.pad_token_id, self.typed = config.pad_token_id, typed
        self._where = _name(folder)
        self._backend, self.mask_token = read_backend(folder)
        if template:
            add_template(self._backend, template, self.mask_token, self._where)
        self.template = read_template(self._backend)
        self._lock = threading.Lock()  # the backend keeps truncation as state
        _check_ids(self._backend, config, self._where)

    def __getstate__(self) -> dict[str, Any]:  # a lock cannot be sent to another process
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def __call__(self, sentences: Sequence[Text], max_length: int) -> list[np.ndarray]:
        """Token ids, one int32 array per sentence, at most `max_length` long, including special tokens.

        With types, an array is (T, 2): each token's id and type.
        """
        return self.tokenize(sentences, max_length)[0]

    @property
    def mask_token_id(self) -> int | None:
        """The id of its mask token; None without one."""
        return None if self.mask_token is None else self._backend.token_to_id(self.mask_token)

    def make_template(self, text: str) -> Template:
        """Another template by its text, with the same special tokens at the ends; see `template.make_template`."""
        with self._lock:
            return make_template(self._backend, text, self.mask_token, self._where)

    def tokenize(self, sentences: Sequence[Text], max_length: int) -> tuple[list[np.ndarray], dict[int, int]]:
        """Token ids as from `__call__`, and the rows of sentences that were cut, each with the number of tokens lost.

        Thread-safe.
        """
        tokens: list[np.ndarray] = []
        cut = {}
        for encoding in self._encodings(sentences, max_length, self._backend.encode_batch_fast):
            ids = np.array(encoding.ids, np.int32)
            if len(ids) == max_length and encoding.overflowing:
                special = self._backend.num_special_tokens_to_add(False)  # each part has them
                cut[len(tokens)] = sum(len(part) - special for part in encoding.overflowing)
            tokens.append(np.stack([ids, np.array(encoding.type_ids, np.int32)], axis=1) if self.typed else ids)
        return tokens, cut

    def words(self, sentences: Sequence[str], max_length: int) -> list[np.ndarray]:
        """For each token of `__call__`, the number of its word in the sentence; −1 for a special token around it.

        Words are the parts that the tokenizer splits a sentence into before it uses its vocabulary: BERT's end at white
        space and punctuation.
        """
        encodings = self._encodings(sentences, max_length, self._backend.encode_batch)
        return [np.array([-1 if word is None else word for word in e.word_ids], np.int32) for e in encodings]

    def pieces(self, text: str) -> np.ndarray:
        """The token ids of a text of any length, int32, without special tokens."""
        encode = functools.partial(self._backend.encode_batch_fast, add_special_tokens=False)
        (encoding,) = self._encodings([text], None, encode)
        return np.array(encoding.ids, np.int32)

    def first_tokens(self, texts: Sequence[str], most: int) -> list[str]:
        """The beginning of each text: its first `most` tokens, special ones not counted; all of a shorter text."""
        encode = functools.partial(self._backend.encode_batch, add_special_tokens=False)
        encodings = self._encodings(texts, most, encode)
        return [
            text[: encoding.offsets[-1][1]] if encoding.overflowing else text
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def text(self, ids: np.ndarray) -> str:
        """The text of token ids."""
        return str(self._backend.decode(ids.tolist()))

    def count_prompt(self, prompt: str, max_length: int) -> int:
        """The number of tokens that a prompt before a sentence has, with the special ones before it; 0 without one."""
        if not prompt:
            return 0
        (words,) = self.words([prompt], max_length)
        return len(words) - int(words[-1] == -1)  # sentence-transformers leaves out a last special token too

    def token(self, number: int) -> str:
        """The text of a token as in the vocabulary, e.g. `##ing` or `Ġthe`."""
        text = self._backend.id_to_token(number)
        assert text is not None
        return text

    def vocabulary(self, size: int) -> list[str]:
        """The texts of the token ids from 0 to `size`; empty where an id has none."""
        return [self._backend.id_to_token(number) or "" for number in range(size)]

    def _encodings(
        self, sentences: Sequence[Text], max_length: int | None, encode: Callable[[list[Any]], list["Encoding"]]
    ) -> Iterator["Encoding"]:
        with self._lock:
            if max_length is None:
                self._backend.no_truncation()
            elif self.template is not None and max_length <= (most := self.template.size):  # it would cut nothing
                raise UserError(
                    f"{max_length} tokens leave no room for a sentence: the model's template alone has {most}"
                )
            else:
                self._backend.enable_truncation(max_length)
            for start in range(0, len(sentences), CHUNK):  # an encoding is much larger than its ids
                yield from encode(list(sentences[start : start + CHUNK]))

    @property
    def lowers_first(self) -> bool:
        """Whether all letters are lowered before anything else, which transformers does not read from a file."""
        from tokenizers.normalizers import Lowercase, Sequence

        normalizer = self._backend.normalizer
        first = next(iter(normalizer), None) if isinstance(normalizer, Sequence) else normalizer
        return isinstance(first, Lowercase)

    def save(self, path: Path) -> None:
        """Writes this tokenizer as a `tokenizer.json`, without truncation."""
        with self._lock:
            self._backend.no_truncation()
            self._backend.save(str(path))

    def content(self) -> bytes:
        """The bytes that `save` writes: everything that token ids depend on."""
        with self._lock:
            self._backend.no_truncation()
            return self._backend.to_str().encode()

    def pad(self, rows: Sequence[np.ndarray], length: int) -> tuple[np.ndarray, np.ndarray]:
        """Pads B rows on the right: token ids and mask, both (B, length) int32. With types, the mask has type + 1."""
        ids = np.full((len(rows), length), self.pad_token_id, np.int32)
        mask = np.zeros((len(rows), length), np.int32)
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)] = tokens[:, 0] if self.typed else tokens
            mask[row, : len(tokens)] = tokens[:, 1] + 1 if self.typed else 1
        return ids, mask


def special_tokens(folder: Path, mask_token: str = "") -> tuple[int, tuple[int, ...]]:
    """The id of a model folder's mask token, and the sorted ids of all its special tokens, including the mask token.

    `mask_token` is a token of its vocabulary in the place of its own; empty: its own.
    """
    backend, own = read_backend(folder)
    mask_token = mask_token or own or ""
    special = {index for index, token in backend.get_added_tokens_decoder().items() if token.special}
    mask = backend.token_to_id(mask_token) if mask_token else None
    if mask is None:
        named = f"token {mask_token!r:.60}" if mask_token else "mask token"
        raise UserError(f"{folder}: its tokenizer has no {named}, which masked language modelling needs")
    return mask, tuple(sorted(special | {mask}))


def read_backend(folder: Path) -> tuple["Backend", str | None]:
    """A model folder's tokenizer and the text of its mask token, if it has one."""
    for name in (*FILES, *_compiled(folder)):
        if (folder / name).is_file() and (size := (folder / name).stat().st_size) > LARGEST:
            raise UserError(f"{folder / name}: has {size:,} bytes; a tokenizer's file has at most {LARGEST:,}")
    if stated(folder, "tokenizer_config.json").get("truncation_side", "right") != "right":
        raise UserError(f"{folder / 'tokenizer_config.json'}: truncation_side is not 'right', which alone is supported")
    try:
        with _silent():
            backend = _from_file(folder) if (folder / "tokenizer.json").is_file() else _from_transformers(folder)
            if not (folder / MARKER).is_file() and transformer_fields(folder).get("do_lower_case") is True:
                _lower_case(backend)
            backend.no_padding()
            backend.no_truncation()
            if getattr(backend.model, "dropout", None):  # of BPE: merges dropped at random are for training
                backend.model.dropout = None
            backend.encode(UNKNOWN)
    except UserError:
        raise
    except BaseException as error:  # both libraries raise bare exceptions; a panic of Rust is not an `Exception`
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UserError(f"{_name(folder)}: not a readable tokenizer: {reason(error)}") from None
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    usual = next((token for token in MASK_TOKENS if token in special), None)
    return backend, _named_tokens(folder).get("mask_token", usual)


def _from_file(folder: Path) -> "Backend":
    """The tokenizer of `tokenizer.json`, with the settings of the other files that transformers puts above its own."""
    from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers

    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if (folder / MARKER).is_file():  # which is complete
        return backend
    config = stated(folder, "tokenizer_config.json")
    if class_of(folder) in WITH_SETTINGS and stated(folder, "config.json").get("model_type") != "modernbert":
        if isinstance(normalizer := backend.normalizer, normalizers.BertNormalizer):
            normalizer.lowercase = config.get("do_lower_case", True)
            normalizer.handle_chinese_chars = config.get("tokenize_chinese_chars", True)
            normalizer.strip_accents = config.get("strip_accents")
        if isinstance(words := backend.pre_tokenizer, pre_tokenizers.ByteLevel):
            words.add_prefix_space = config.get("add_prefix_space", False)
    named, added = _named_tokens(folder), backend.get_added_tokens_decoder().values()
    new = {token for token in named.values() if backend.token_to_id(token) is not None}
    new -= {token.content for token in added if token.special}
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in sorted(new)])
    if config.get("add_eos_token") is True and (end := backend.token_to_id(named.get("eos_token", ""))) is not None:
        add_end_token(backend, end)  # transformers 5 ignores this field; the model was trained with the token
    return backend


def _from_transformers(folder: Path) -> "Backend":
    """The tokenizer of a folder without `tokenizer.json`."""
    if not any(all((folder / name).is_file() for name in names) for names in VOCABULARIES) and not _compiled(folder):
        raise UserError(  # transformers would make an empty one
            f"{folder}: no vocabulary; it must have tokenizer.json, vocab.txt, or vocab.json and merges.txt"
        )
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it warns that PyTorch is missing
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False).backend_tokenizer


def _compiled(folder: Path) -> list[str]:
    """SentencePiece's files; of macOS's hidden ones, none."""
    return glob.glob("*.model", root_dir=folder)


def _check_ids(backend: "Backend", config: EncoderConfig, where: str) -> None:
    """Refuses the tokenizer of another model: no tokens at the ends, or ids beyond the table."""
    ends = backend.encode("").ids
    if not ends:
        cure = "set add_eos_token to true in tokenizer_config.json, or name [CLS] and [SEP] in its post_processor"
        raise UserError(f"{where}: its tokenizer puts no tokens at the ends of a sentence; {cure}")
    largest = max([*vocabulary(backend).values(), *ends])
    if largest >= config.vocab_size:
        raise UserError(f"{where}: its tokenizer has token {largest}, its weights only {config.vocab_size} rows")
    if 2 * largest < config.vocab_size:  # a few rows more are usual, for the sake of speed
        problem = f"its last token is {largest}, its weights have {config.vocab_size} rows"
        raise UserError(f"{where}: a vocabulary that was cut short, or another model's: {problem}")


def vocabulary(backend: "Backend") -> dict[str, int]:
    """The ids of all tokens that a text can have: all but the empty one, which a blank line of `vocab.txt` makes."""
    return {token: number for token, number in backend.get_vocab(with_added_tokens=True).items() if token}


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Hides what Rust prints when it panics; the exception says the same."""
    with _redirecting, open(os.devnull, "wb") as nowhere:
        try:
            before = os.dup(2)
        except OSError:  # there is no standard error
            yield
            return
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)


def _name(folder: Path) -> str:
    """The file of a tokenizer, for error messages; the folder where it has several."""
    path = folder / "tokenizer.json"
    return str(path if path.is_file() else folder)


def _lower_case(backend: "Backend") -> None:
    """Makes a tokenizer lower all letters first, unless it does already, as sentence-transformers does."""
    from tokenizers.normalizers import Lowercase, Sequence

    before = backend.normalizer
    parts = [*iter(before)] if isinstance(before, Sequence) else [before] if before else []
    if not any(isinstance(part, Lowercase) for part in parts):
        backend.normalizer = Sequence([Lowercase(), *parts])


def _named_tokens(folder: Path) -> dict[str, str]:
    """The special tokens that the files next to `tokenizer.json` name, as strings or as objects."""
    fields = stated(folder, "tokenizer_config.json") | stated(folder, "special_tokens_map.json")
    named = {name: token.get("content") if isinstance(token, dict) else token for name, token in fields.items()}
    return {name: token for name, token in named.items() if name in NAMED and isinstance(token, str)}


def class_of(folder: Path) -> str:
    """The class of a folder's tokenizer in transformers, by its slow version's name; "" if its files name none."""
    classes = (stated(folder, name).get("tokenizer_class") for name in ("tokenizer_config.json", "config.json"))
    return str(next(filter(None, classes), "")).removesuffix("Fast")


def stated(folder: Path, name: str) -> dict[str, Any]:
    """The fields of a folder's file; none without the file."""
    return read_json(folder / name) if (folder / name).is_file() else {}
