"""Tokenizers: missing, contradictory, or made to run for ever; and folders with code in them."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hostile.case import DONE, EITHER, REFUSED_OR_SAME, Case
from hostile.damages import Make, both, cut, flip, remove, write
from hostile.json_damages import edit_json, set_field
from hostile.readers import readers_of_model

KIND = "tokenizers"
FILE, SETTINGS, CONFIG = (f"model/{name}.json" for name in ("tokenizer", "tokenizer_config", "config"))
SPLIT = {"type": "Split", "pattern": {"Regex": "(a|a?)+$"}, "behavior": "Isolated", "invert": False}
DEEP: dict[str, Any] = {"type": "Lowercase"}
for _ in range(200):
    DEEP = {"type": "Sequence", "normalizers": [DEEP]}
CUT = {"direction": "Right", "strategy": "LongestFirst"}
PADDED = {"strategy": {"Fixed": 10**6}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
PADDED |= {"pad_type_id": 0, "pad_token": "[PAD]"}
BERT_TOKENS = ("[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]")
ADDED = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
CLS = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def replaced(pattern: str) -> dict[str, Any]:
    """A normalizer that removes what an expression finds."""
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": ""}


def in_place(name: str, content: bytes | str) -> Make:
    """A file of another format in place of tokenizer.json."""
    return both(remove(FILE), write(f"model/{name}", content))


def vocab_txt(end: str) -> Make:
    """A file with as many words as the model's table has rows, and this end, in place of the model's tokenizer."""
    words = [*BERT_TOKENS, *(f"w{number}" for number in range(40 - len(BERT_TOKENS)))]
    return both(remove(SETTINGS), in_place("vocab.txt", "\n".join(words) + end))


def fields(**values: Any) -> Make:
    """Sets fields of tokenizer.json; two underscores go into an object."""
    return both(*(set_field(FILE, name.replace("__", "/"), value) for name, value in values.items()))


def vocabulary(change: Callable[[dict[str, Any]], object]) -> Make:
    return edit_json(FILE, lambda value: change(value["model"]["vocab"]))


def grown(folder: Path) -> None:
    """A file of zeros, which takes no room on the disk."""
    os.truncate(folder / FILE, 1 << 30)


def far_ids(whole: dict[str, Any]) -> None:
    for token in whole["post_processor"]["special_tokens"].values():
        token["ids"] = [10**6]


REFUSED_ONES: dict[str, Make] = {
    "no tokenizer.json": remove(FILE),
    "a vocab.txt of other bytes": in_place("vocab.txt", b"\xff\xfe\n" * 40),
    "a vocab.txt with words beyond the table": vocab_txt("\na\n"),
    "a vocab.json that is a list": both(in_place("vocab.json", "[]"), write("model/merges.txt", "")),
    "a damaged sentencepiece.model": in_place("sentencepiece.bpe.model", b"\1\2\3"),
    "no words": vocabulary(lambda words: words.clear()),
    "ids just beyond the table": vocabulary(lambda words: words.update(cat=40)),
    "tokenizer.json of a gigabyte": grown,
    "an id of 2^33": vocabulary(lambda words: words.update(cat=2**33)),
    "an unknown model": fields(model__type="NoneSuch"),
    "a bad expression": fields(normalizer=replaced("(")),
    "a damaged character map": fields(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
    "a template with ids beyond the table": edit_json(FILE, far_ids),
    **{f"tokenizer.json cut to {share}": cut(FILE, share) for share in (0.1, 0.5, 0.999)},
}
READ: dict[str, Make] = {  # or refused
    "only special tokens": vocabulary(lambda words: [words.pop(word) for word in list(words)[4:]]),
    "no [UNK]": vocabulary(lambda words: words.pop("[UNK]")),
    "normalizers nested deeply": fields(normalizer=DEEP),
    "a normalizer that removes all": fields(normalizer=replaced(".")),
    "a slow expression": fields(pre_tokenizer=SPLIT),
    "a template without the sentence": fields(post_processor__single=[CLS]),
    "truncation to nothing": fields(truncation=CUT | {"max_length": 0, "stride": 0}),
    "padding to a million": fields(padding=PADDED),
    "an added token that is empty": fields(added_tokens=[ADDED | {"id": 3, "content": "", "special": True}]),
    **{f"tokenizer.json changed by seed {seed}": flip(FILE, seed) for seed in range(6)},
}
CODE = write("model/code.py", "open('pwned', 'w').close()\nraise SystemExit(0)\n")
MAP = {"AutoModel": "code.Model", "AutoConfig": "code.Config", "AutoTokenizer": ["code.Tokenizer", "code.Tokenizer"]}
MODULES = '[{"idx": 0, "name": "0", "path": "", "type": "code.Transformer"}]'
WITH_CODE: dict[str, Make] = {  # what other programs would run; the listing shows whether a file was made
    "auto_map in config.json": both(CODE, set_field(CONFIG, "auto_map", MAP)),
    "auto_map in tokenizer_config.json": both(CODE, set_field(SETTINGS, "auto_map", MAP)),
    "a class of its own": both(CODE, set_field(SETTINGS, "tokenizer_class", "code.Tokenizer")),
    "modules of its own": both(CODE, write("model/modules.json", MODULES)),
    "a pickled tokenizer": write("model/tokenizer.pkl", b"cos\nsystem\n(S'touch pwned'\ntR."),
    "a chat template": write("model/chat_template.jinja", "{{ ''.__class__.__mro__[1].__subclasses__() }}"),
}
# A tokenizer that only code can read; some libraries ask on standard input whether to run it.
OF_ITS_OWN = both(set_field(SETTINGS, "auto_map", MAP), set_field(SETTINGS, "tokenizer_class", "Tokenizer"))
ASKED = both(CODE, OF_ITS_OWN, set_field(CONFIG, "auto_map", MAP))


def cases() -> Iterator[Case]:
    encode, *_ = readers = readers_of_model()
    for reader, (damage, make) in zip(itertools.cycle(readers[:4]), REFUSED_ONES.items(), strict=False):
        yield reader.case(KIND, damage, make)
    for damage, make in READ.items():
        yield encode.case(KIND, damage, make, EITHER)
    yield encode.case(KIND, "a vocab.txt with blank lines at the end", vocab_txt("\n\n\n"), DONE)
    yield encode.case(KIND, "a decoder of another kind", fields(decoder=BYTES), REFUSED_OR_SAME)
    for reader, (damage, make) in zip(itertools.cycle(readers[:3]), WITH_CODE.items(), strict=False):
        yield reader.case(KIND, f"code: {damage}", make, REFUSED_OR_SAME)
    for reader in readers:
        damage = "code: a tokenizer of its own, and yes to every question"
        yield reader.case(KIND, damage, ASKED, EITHER, stdin="y\n" * 100)
