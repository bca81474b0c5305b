"""Tokenizers: missing, contradictory, or made to run for ever; and folders with code in them."""

import itertools
from collections.abc import Iterator
from typing import Any

from hostile.case import DONE, EITHER, REFUSED, REFUSED_OR_SAME, Case
from hostile.cases_json import readers_of_model
from hostile.damages import Make, both, cut, flip, remove, write
from hostile.json_damages import change_json, set_field

from simcse_jax.huggingface.tokenizer_rules import BERT_TOKENS

FILE = "model/tokenizer.json"
GROW = {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}] * 10}
SPLIT = {"type": "Split", "pattern": {"Regex": "(a|a?)+$"}, "behavior": "Isolated", "invert": False}
DEEP: dict[str, Any] = {"type": "Lowercase"}
for _ in range(200):
    DEEP = {"type": "Sequence", "normalizers": [DEEP]}


def vocab_txt(end: str) -> Make:
    """A file with as many words as the model's table has rows, and this end, in place of the model's tokenizer."""
    words = [*BERT_TOKENS.values(), *(f"w{number}" for number in range(40 - len(BERT_TOKENS)))]
    return both(remove(FILE), remove("model/tokenizer_config.json"), write("model/vocab.txt", "\n".join(words) + end))


def fields(**values: Any) -> Make:
    """Sets fields of tokenizer.json; two underscores go into an object."""
    return both(*(set_field(FILE, name.replace("__", "/"), value) for name, value in values.items()))


def vocabulary(change: Any) -> Make:
    return change_json(FILE, lambda value: change(value["model"]["vocab"]))


def shift(words: dict[str, int], by: int) -> None:
    words.update({word: index + by for word, index in words.items()})


DAMAGES: dict[str, tuple[Make, str]] = {
    "no tokenizer.json": (remove(FILE), REFUSED),
    "no tokenizer files": (both(remove(FILE), remove("model/tokenizer_config.json")), REFUSED),
    "an empty vocab.txt": (both(remove(FILE), write("model/vocab.txt", "")), REFUSED),
    "a vocab.txt of other bytes": (both(remove(FILE), write("model/vocab.txt", b"\xff\xfe\n" * 40)), REFUSED),
    "a vocab.txt without special tokens": (both(remove(FILE), write("model/vocab.txt", "a\nb\n")), REFUSED),
    "a vocab.txt with blank lines at the end": (vocab_txt("\n\n\n"), DONE),
    "a vocab.txt with words beyond the table": (vocab_txt("\na\n"), REFUSED),
    "a vocab.json that is a list": (
        both(remove(FILE), write("model/vocab.json", "[]"), write("model/merges.txt", "")),
        REFUSED,
    ),
    "a damaged sentencepiece.model": (both(remove(FILE), write("model/sentencepiece.bpe.model", b"\1\2\3")), REFUSED),
    "no words": (vocabulary(lambda words: words.clear()), REFUSED),
    "only special tokens": (vocabulary(lambda words: [words.pop(word) for word in list(words)[4:]]), EITHER),
    "ids beyond the table": (vocabulary(lambda words: shift(words, 10**6)), REFUSED),
    "ids just beyond the table": (vocabulary(lambda words: words.update(cat=40)), REFUSED),
    "a negative id": (vocabulary(lambda words: words.update(cat=-1)), REFUSED),
    "an id of 2^33": (vocabulary(lambda words: words.update(cat=2**33)), REFUSED),
    "an id that is a word": (vocabulary(lambda words: words.update(cat="x")), REFUSED),
    "the same id twice": (vocabulary(lambda words: words.update(cat=5, dog=5)), EITHER),
    "no [UNK]": (vocabulary(lambda words: words.pop("[UNK]")), EITHER),
    "no [CLS]": (vocabulary(lambda words: words.pop("[CLS]")), EITHER),
    "no [PAD]": (vocabulary(lambda words: words.pop("[PAD]")), EITHER),
    "an unknown model": (fields(model__type="NoneSuch"), REFUSED),
    "no model": (fields(model=None), REFUSED),
    "BPE without merges": (fields(model__type="BPE"), REFUSED),
    "WordPiece": (fields(model__type="WordPiece"), EITHER),
    "an unknown normalizer": (fields(normalizer={"type": "NoneSuch"}), REFUSED),
    "normalizers that grow": (fields(normalizer=GROW), EITHER),
    "normalizers nested deeply": (fields(normalizer=DEEP), EITHER),
    "a normalizer that removes all": (
        fields(normalizer={"type": "Replace", "pattern": {"Regex": "."}, "content": ""}),
        EITHER,
    ),
    "a bad expression": (fields(normalizer={"type": "Replace", "pattern": {"Regex": "("}, "content": ""}), REFUSED),
    "a slow expression": (fields(pre_tokenizer=SPLIT), EITHER),
    "a damaged character map": (fields(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}), REFUSED),
    "an unknown pre-tokenizer": (fields(pre_tokenizer={"type": "NoneSuch"}), REFUSED),
    "no post-processor": (fields(post_processor=None), EITHER),
    "a template with an unknown token": (
        fields(post_processor__single=[{"SpecialToken": {"id": "[X]", "type_id": 0}}]),
        REFUSED,
    ),
    "a template without the sentence": (
        fields(post_processor__single=[{"SpecialToken": {"id": "[CLS]", "type_id": 0}}]),
        EITHER,
    ),
    "a template with the sentence thrice": (
        fields(post_processor__single=[{"Sequence": {"id": "A", "type_id": 0}}] * 3),
        EITHER,
    ),
    "a template with ids beyond the table": (
        change_json(
            FILE,
            lambda value: (
                [token.update(ids=[10**6]) for token in value["post_processor"]["special_tokens"].values()] and None
            ),
        ),
        REFUSED,
    ),
    "truncation to nothing": (
        fields(truncation={"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 0}),
        EITHER,
    ),
    "a stride longer than the text": (
        fields(truncation={"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 9}),
        EITHER,
    ),
    "padding to a million": (
        fields(
            padding={
                "strategy": {"Fixed": 10**6},
                "direction": "Right",
                "pad_to_multiple_of": None,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "[PAD]",
            }
        ),
        EITHER,
    ),
    "added tokens beyond the table": (
        fields(
            added_tokens=[
                {
                    "id": 10**6,
                    "content": "cat",
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                    "special": False,
                }
            ]
        ),
        EITHER,
    ),
    "an added token that is empty": (
        fields(
            added_tokens=[
                {
                    "id": 3,
                    "content": "",
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                    "special": True,
                }
            ]
        ),
        EITHER,
    ),
    "another version": (fields(version="9.0"), EITHER),
    "a decoder of another kind": (
        fields(decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}),
        REFUSED_OR_SAME,
    ),
}
CODE = "open('pwned', 'w').close()\nraise SystemExit(0)\n"
MAP = {"AutoModel": "code.Model", "AutoConfig": "code.Config", "AutoTokenizer": ["code.Tokenizer", "code.Tokenizer"]}
WITH_CODE: dict[str, Make] = {  # what other programs would run; the listing shows whether a file was made
    "auto_map in config.json": both(write("model/code.py", CODE), set_field("model/config.json", "auto_map", MAP)),
    "auto_map in tokenizer_config.json": both(
        write("model/code.py", CODE), set_field("model/tokenizer_config.json", "auto_map", MAP)
    ),
    "a class of its own": both(
        write("model/code.py", CODE), set_field("model/tokenizer_config.json", "tokenizer_class", "code.Tokenizer")
    ),
    "modules of its own": both(
        write("model/code.py", CODE),
        write("model/modules.json", '[{"idx": 0, "name": "0", "path": "", "type": "code.Transformer"}]'),
    ),
    "an __init__.py": both(write("model/__init__.py", CODE), write("model/simcse_jax.py", CODE)),
    "a pickled tokenizer": write("model/tokenizer.pkl", b"cos\nsystem\n(S'touch pwned'\ntR."),
    "a chat template": write("model/chat_template.jinja", "{{ ''.__class__.__mro__[1].__subclasses__() }}"),
}


# A tokenizer that only code can read; some libraries ask on standard input whether to run it.
ASKED = both(
    write("model/code.py", CODE),
    set_field("model/tokenizer_config.json", "auto_map", MAP),
    set_field("model/tokenizer_config.json", "tokenizer_class", "Tokenizer"),
    set_field("model/config.json", "auto_map", MAP),
)


def cases() -> Iterator[Case]:
    readers = itertools.cycle(readers_of_model()[:4])
    for damage, (make, end) in DAMAGES.items():
        reader = next(readers) if end == REFUSED else readers_of_model()[0]
        yield case(reader, damage, make, end)
    for damage, make in WITH_CODE.items():
        for reader in readers_of_model()[:3]:
            yield case(reader, f"code: {damage}", make, REFUSED_OR_SAME)
    for reader in readers_of_model():
        asked = case(reader, "code: a tokenizer of its own, and yes to every question", ASKED, EITHER)
        asked.options["stdin"] = "y\n" * 100
        yield asked
    for seed in range(12):
        yield case(readers_of_model()[0], f"tokenizer.json changed by seed {seed}", flip(FILE, seed), EITHER)
    for share in (0.1, 0.5, 0.999):
        yield case(readers_of_model()[1], f"tokenizer.json cut to {share}", cut(FILE, share), REFUSED)


def case(reader: Any, damage: str, make: Make, end: str) -> Case:
    output = reader.output if end != REFUSED else ""
    return Case(
        "tokenizers", reader.command, damage, reader.arguments, reader.inputs, make, end, output=output, options={}
    )
