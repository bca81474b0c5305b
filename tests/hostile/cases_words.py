"""Word vectors: files in GloVe's format, and sentence-transformers' module of them."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from hostile.case import DONE, REFUSED, TEXT, Case
from hostile.cases_json import readers_of_model
from hostile.damages import Make, both, write
from hostile.seeds import train_arguments

KIND = "word vectors"
FILE, FOLDER = "vectors.txt", "words"
ROWS = "the 1.5 2 -3\ncat 0 1 2\na 2 2 2.5\n"
NUMBERS = {"NaN": "nan", "infinite": "1e99", "a word": "two", "with a comma": "1,5", "hex": "0x1p3", "empty": ""}
FILES: dict[str, tuple[str | bytes, str]] = {
    "none": (ROWS, DONE),
    "with a header": (f"3 3\n{ROWS}", DONE),
    "compressed": (gzip.compress(ROWS.encode()), DONE),
    "words with spaces": (f". . 1 2 3\n{ROWS}".replace(". . 1 2 3\nthe 1.5 2 -3", "the 1.5 2 -3\n. . 1 2 3"), DONE),
    "an empty file": ("", REFUSED),
    "only line ends": ("\n\n", REFUSED),
    "words alone": ("the\ncat\n", REFUSED),
    "a line that is too short": (ROWS + "dog 1 2\n", REFUSED),
    "a line that is too long": (ROWS + "dog 1 2 3 4\n", REFUSED),
    "a word twice": (ROWS + "cat 1 2 3\n", DONE),
    "a word twice, a word with a space and a header": (f"5 3\n{ROWS}cat 1 2 3\nice cream 1 2 3\n", DONE),
    "a byte-order mark and a header": (f"\ufeff3 3\n{ROWS}", DONE),
    "not UTF-8": (ROWS.encode() + b"caf\xe9 1 2 3\n", REFUSED),
    "a NUL among numbers": (ROWS + "dog 1 2 \0\n", REFUSED),
    "binary": (bytes(range(256)) * 50, REFUSED),
    "a header of more words": (f"4 3\n{ROWS}", REFUSED),
    "a header of fewer words": (f"2 3\n{ROWS}", REFUSED),
    "a header of a huge width": (f"3 {10**12}\n{ROWS}", REFUSED),
    "tabs": (ROWS.replace(" ", "\t"), REFUSED),
    "a table with commas": (ROWS.replace(" ", ","), REFUSED),
    "JSON": ('{"the": [1, 2, 3]}', REFUSED),
    "compressed and cut short": (gzip.compress(ROWS.encode() * 100)[:-30], REFUSED),
    **{f"a number that is {name}": (ROWS + f"dog 1 {text} 3\n", REFUSED) for name, text in NUMBERS.items()},
}
NAMES = ("glove:", "glove:none-such.txt", "glove:.", "glove+upper:vectors.txt", "glove+lower+lower:vectors.txt")
WORDS = {"vocab": ["PADDING_TOKEN", "the", "cat"], "stop_words": ["a"], "do_lower_case": False}
ABOUT = {"tokenizer_class": "x.WhitespaceTokenizer", "max_seq_length": 100}
FOLDERS: dict[str, tuple[dict[str, object], dict[str, object], tuple[int, ...], str]] = {
    "none": ({}, {}, (3, 4), DONE),
    "fewer rows than words": ({}, {}, (2, 4), REFUSED),
    "no columns": ({}, {}, (3, 0), REFUSED),
    "three axes": ({}, {}, (3, 4, 1), REFUSED),
    "no vocabulary": ({"vocab": None}, {}, (3, 4), REFUSED),
    "numbers for words": ({"vocab": [1, 2, 3]}, {}, (3, 4), REFUSED),
    "a word twice": ({"vocab": ["a", "a", "b"]}, {}, (3, 4), REFUSED),
    "stop words in a string": ({"stop_words": "the"}, {}, (3, 4), REFUSED),
    "another tokenizer": ({}, {"tokenizer_class": "x.PhraseTokenizer"}, (3, 4), REFUSED),
    "a length of zero": ({}, {"max_seq_length": 0}, (3, 4), REFUSED),
    "a length in words": ({}, {"max_seq_length": "many"}, (3, 4), REFUSED),
}


def module(words: dict[str, object], about: dict[str, object], shape: tuple[int, ...]) -> Make:
    """A folder of sentence-transformers whose first module has these files."""

    def tensors(folder: Path) -> None:
        from safetensors.numpy import save_file

        save_file({"emb_layer.weight": np.ones(shape, np.float32)}, folder / FOLDER / "0" / "model.safetensors")

    listed = [("0", "WordEmbeddings"), ("1", "Pooling")]
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in listed]
    return both(
        lambda folder: os.makedirs(folder / FOLDER / "0") or os.makedirs(folder / FOLDER / "1"),
        write(f"{FOLDER}/modules.json", json.dumps(modules)),
        write(f"{FOLDER}/0/whitespacetokenizer_config.json", json.dumps(WORDS | words)),
        write(f"{FOLDER}/0/wordembedding_config.json", json.dumps(ABOUT | about)),
        write(f"{FOLDER}/1/config.json", '{"pooling_mode": "mean"}'),
        tensors,
    )


def cases() -> Iterator[Case]:
    readers = [reader for reader in readers_of_model(f"glove:{FILE}") if reader.command in ("encode", "evaluate")]
    for number, (damage, (content, end)) in enumerate(FILES.items()):
        reader = readers[number % 2]
        yield Case(
            KIND,
            reader.command,
            damage,
            reader.arguments,
            reader.inputs[1:],
            write(FILE, content),
            end,
            FILE if end == REFUSED else "",
            reader.output,
        )
    for name in NAMES:
        encode = readers_of_model(name)[0]
        yield Case(KIND, "encode", f"the name {name}", encode.arguments, [TEXT], write(FILE, ROWS), names="glove")
    for command in ("analyze", "train"):
        (reader,) = [reader for reader in readers_of_model(f"glove:{FILE}") if reader.command == command]
        yield Case(KIND, command, "no layers", reader.arguments, reader.inputs[1:], write(FILE, ROWS), names=FILE)
    for damage, changes in {
        "no layers, the pooler cls": {"model__pooler": "cls"},
        "no layers, a language model": {"objective__mlm__weight": 0.1, "model__pooler": "avg"},
        "no layers, measured": {"analysis__every": 1, "model__pooler": "avg"},
    }.items():
        arguments = train_arguments("run", model__init_from=f"glove:{FILE}", train__epochs=0, **changes)
        arguments.append("--config.train.max_steps=0")
        yield Case(KIND, "train", damage, arguments, [TEXT, "pairs.tsv"], write(FILE, ROWS), names=FILE)
    for damage, (words, about, shape, end) in FOLDERS.items():
        encode = readers_of_model(FOLDER)[0]
        make = module(words, about, shape)
        yield Case(KIND, "encode", f"module: {damage}", encode.arguments, [TEXT], make, end, output=encode.output)
