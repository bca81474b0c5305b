import json
import os

import pytest
from support import CONFIGS
from support.models import edit_json

from simcse_jax.errors import UserError
from simcse_jax.huggingface import tokenizer_checks
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.huggingface.tokenizer_checks import MOST_GROWTH, panics_in_a_line
from simcse_jax.models.config import EncoderConfig

BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def bert(tiny_bert, tmp_path):
    """A copy of the files of the tokenizer, as those that we export: `tokenizer.json` is complete."""
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        (tmp_path / name).write_bytes((tiny_bert / name).read_bytes())
    (tmp_path / "simcse_jax.json").write_text("{}")
    return tmp_path


def read(folder, kind="bert", **changes):
    return Tokenizer(folder, EncoderConfig.from_hugging_face(CONFIGS[kind] | changes, "test"))


def edit_model(folder, **changes):
    edit_json(folder / "tokenizer.json", model=json.loads((folder / "tokenizer.json").read_text())["model"] | changes)


def test_a_vocabulary_without_words_or_ends_is_refused(tmp_path):
    no_words = [
        ("bert", {}, "no vocabulary; it must have tokenizer.json, vocab.txt"),
        ("roberta", {"vocab.json": "{}"}, "has vocab.json, but not its merges.txt"),
        ("bert", {"vocab.txt": "\n".join(BERT)}, "its vocabulary has no words"),
        ("bert", {"vocab.txt": "the\ncat\n"}, r"its vocabulary has no \[CLS\]"),
        ("bert", {"vocab.txt": "\n".join([*BERT[2:], "the"])}, r"its vocabulary has no \[UNK\]"),
        ("mpnet", {"vocab.txt": "\n".join([*BERT, "the"])}, "its vocabulary has no <s>"),
        *(("roberta", {"vocab.json": x, "merges.txt": ""}, "vocab.json|its vocabulary has no") for x in ("{}", "[]")),
        *(("bert", {"tokenizer.json": content}, "tokenizer.json") for content in ("{}", "")),
    ]
    for place, (kind, files, message) in enumerate(no_words):
        folder = tmp_path / str(place)
        folder.mkdir()
        for name, content in ({"config.json": json.dumps(CONFIGS[kind])} | files).items():
            (folder / name).write_text(content)
        with pytest.raises(UserError, match=rf"^{folder}.*{message}"):
            read(folder, kind)


CLS = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}


def ends(*parts, number=2):
    special = {"[CLS]": {"id": "[CLS]", "ids": [number], "tokens": ["[CLS]"]}}
    fields = {"type": "TemplateProcessing", "single": list(parts), "pair": [], "special_tokens": special}
    return {"post_processor": fields}


def vocabulary(**words):
    return {"[CLS]": 2, "[SEP]": 3, "[UNK]": 1, **words}


BPE = {"type": "BPE", "vocab": {}, "merges": [], "dropout": 0.1}
CANNOT = {  # by file, its changed fields and what the refusal says of them
    "tokenizer.json": [
        *(({"post_processor": None}, "no tokens at the ends"), (ends(TEXT), "no tokens at the ends")),
        (ends(CLS, TEXT, CLS, number=99), "has token 99, its weights only 40 rows"),
        (ends(*[CLS] * 70, TEXT), "adds 70 tokens to a sentence of at most 64"),
        ({"post_processor": {"type": "None"}}, "not a readable tokenizer"),
        *(({"model": value}, "has no 'model' with a 'vocab'") for value in ("x", {"vocab": 3})),
        ({"model": BPE}, r"drops merges at random \(dropout 0\.1\)"),
        *(({name: {"direction": "Left"}}, f"of {name} is Left") for name in ("truncation", "padding")),
    ],
    "tokenizer_config.json": [
        ({name: "left"}, f"{name} is 'left'; only") for name in ("truncation_side", "padding_side")
    ],
    "its model": [
        *(({"unk_token": "[NONE]"}, r"its vocabulary has no \[NONE\]"), ({"vocab": {}}, "its vocabulary has no")),
        ({"vocab": vocabulary(a=99)}, "has token 99"),
        *(({"vocab": vocabulary(a=number)}, "not a readable tokenizer") for number in (-1, 2**40)),
        ({"vocab": vocabulary(a=4) | {"[PAD]": 0}}, "cut short, or another model's: its last token is 4"),
    ],
}
FILES = [("tokenizer.json", b"[" * 10**5), ("tokenizer.json", b"\xff"), ("tokenizer_config.json", b"[]")]
FILES += [("added_tokens.json", content) for content in (b"3", b'{"a": NaN}')]


CASES = [(file, *each) for file in CANNOT for each in CANNOT[file]] + [(*each, None) for each in FILES]


@pytest.mark.parametrize(("file", "fields", "message"), CASES)
def test_a_tokenizer_that_cannot_work_is_refused(bert, file, fields, message):
    if message is None:  # it cannot be read
        (bert / file).write_bytes(fields)
    else:
        edit_model(bert, **fields) if file == "its model" else edit_json(bert / file, **fields)
    with pytest.raises(UserError, match=rf"^{bert}.*: .*{message}" if message else rf"^{bert / file}: "):
        read(bert)


def test_a_normalizer_without_bounds_and_another_model_s_padding_are_refused_before_use(bert):
    doubled = [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}]
    edit_json(bert / "tokenizer.json", normalizer={"type": "Sequence", "normalizers": doubled * 60})
    for _ in ("we read it", "transformers would"):
        with pytest.raises(UserError, match=rf"normalizer can make 1e\+18 characters of one; {MOST_GROWTH} are"):
            read(bert)
        (bert / "simcse_jax.json").unlink(missing_ok=True)
    edit_json(bert / "tokenizer.json", normalizer={"type": "Sequence", "normalizers": doubled * 3})
    (bert / "simcse_jax.json").write_text("{}")
    assert len(read(bert)(["cat"], 16)[0]) == 3
    assert read(bert, pad_token_id=3)  # paraphrase-multilingual-MiniLM states another one, and only its mask counts
    with pytest.raises(UserError, match=r"tokenizer of another model: \[PAD\] is token 0, in config.json it is 1"):
        read(bert, "roberta")
    edit_model(bert, vocab=vocabulary(a=4))
    with pytest.raises(UserError, match=r"of another model: has no padding, in config.json it is 1"):
        read(bert, "mpnet")


def test_what_rust_prints_when_it_panics_is_left_out_and_anything_else_is_kept(bert, capfd):
    edit_json(bert / "tokenizer.json", post_processor=ends(CLS, TEXT, CLS)["post_processor"] | {"special_tokens": {}})
    with pytest.raises(UserError, match=r"tokenizer\.json: not a readable tokenizer: "):
        read(bert)
    assert capfd.readouterr().err == ""
    with pytest.raises(KeyError), panics_in_a_line():
        os.write(2, b"a warning\n")
        raise KeyError
    assert capfd.readouterr().err == "a warning\n"


def test_sentencepiece_s_file_alone_needs_its_package(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "._spiece.model").write_bytes(b"\0\5")
    with pytest.raises(UserError, match="no vocabulary"):
        tokenizer_checks.check_has_vocabulary(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"\n")
    with pytest.raises(UserError, match=r"spiece\.model: the package sentencepiece, which reads it, is not installed"):
        tokenizer_checks.check_has_vocabulary(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    tokenizer_checks.check_has_vocabulary(tmp_path)
