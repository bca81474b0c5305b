import json
import os

import pytest
from support import CONFIGS
from support.models import edit_json

from simcse_jax.errors import UserError
from simcse_jax.huggingface.tokenizer import Tokenizer, read_backend
from simcse_jax.huggingface.tokenizer_checks import (
    MOST_GROWTH,
    check_has_vocabulary,
    growth,
    panics_in_a_line,
    stated_tokens,
)
from simcse_jax.models.config import EncoderConfig

VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt")
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
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    edit_json(folder / "tokenizer.json", model=model | changes)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_folder_without_a_vocabulary_is_refused(tmp_path, kind):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[kind]))
    with pytest.raises(UserError, match=f"^{tmp_path}: no vocabulary; it must have tokenizer.json, vocab.txt"):
        read_backend(tmp_path)
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(UserError, match=f"^{tmp_path}: has vocab.json, but not its merges.txt"):
        read_backend(tmp_path)


@pytest.mark.parametrize(
    ("kind", "files", "message"),
    [
        ("bert", {"vocab.txt": ""}, "its vocabulary has no"),
        ("bert", {"vocab.txt": "\n".join(BERT)}, "its vocabulary has no words"),
        ("bert", {"vocab.txt": "the\ncat\n"}, r"its vocabulary has no \[CLS\], which the tokenizer needs"),
        ("bert", {"vocab.txt": "\n".join([*BERT[2:], "the"])}, r"its vocabulary has no \[UNK\]"),
        ("mpnet", {"vocab.txt": "\n".join([*BERT, "the"])}, "its vocabulary has no <s>"),
        ("roberta", {"vocab.json": "{}", "merges.txt": ""}, "its vocabulary has no"),
        ("roberta", {"vocab.json": "[]", "merges.txt": ""}, "not a JSON object"),
        ("bert", {"tokenizer.json": "{}"}, "has no 'model' with a 'vocab'"),
        ("bert", {"tokenizer.json": ""}, "not valid JSON"),
    ],
)
def test_a_vocabulary_without_words_or_ends_is_refused(tmp_path, kind, files, message):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[kind]))
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=rf"^{tmp_path}.*: .*({message})"):
        read(tmp_path, kind)


CLS = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}


def template(*parts, number=2):
    special = {"[CLS]": {"id": "[CLS]", "ids": [number], "tokens": ["[CLS]"]}}
    return {"type": "TemplateProcessing", "single": list(parts), "pair": [], "special_tokens": special}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: edit_json(f / "tokenizer.json", post_processor=None), "no tokens at the ends of a sentence"),
        (lambda f: edit_json(f / "tokenizer.json", post_processor=template(TEXT)), "no tokens at the ends"),
        (
            lambda f: edit_json(f / "tokenizer.json", post_processor=template(CLS, TEXT, CLS, number=99)),
            "has token 99, its weights only 40 rows",
        ),
        (
            lambda f: edit_json(f / "tokenizer.json", post_processor=template(*[CLS] * 70, TEXT)),
            "adds 70 tokens to a sentence of at most 64",
        ),
        (lambda f: edit_json(f / "tokenizer.json", post_processor={"type": "None"}), "not a readable tokenizer"),
        (lambda f: edit_model(f, unk_token="[NONE]"), r"its vocabulary has no \[NONE\]"),
        (lambda f: edit_model(f, vocab={}), "its vocabulary has no"),
        (lambda f: edit_model(f, vocab={"[CLS]": 2, "[SEP]": 3, "[UNK]": 1, "a": 99}), "has token 99"),
        (lambda f: edit_model(f, vocab={"[CLS]": 2, "[SEP]": 3, "[UNK]": 1, "a": -1}), "not a readable tokenizer"),
        (lambda f: edit_model(f, vocab={"[CLS]": 2, "[SEP]": 3, "[UNK]": 1, "a": 2**40}), "not a readable tokenizer"),
        (
            lambda f: edit_model(f, vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "a": 4}),
            "cut short, or another model's: its last token is 4, its weights have 40 rows",
        ),
        (lambda f: edit_model(f, vocab=3), "has no 'model' with a 'vocab'"),
        (lambda f: edit_json(f / "tokenizer.json", model="x"), "has no 'model' with a 'vocab'"),
        (
            lambda f: edit_json(f / "tokenizer.json", model={"type": "BPE", "vocab": {}, "merges": [], "dropout": 0.1}),
            r"drops merges at random \(dropout 0\.1\)",
        ),
        *(
            (
                lambda f, name=name: edit_json(f / "tokenizer.json", **{name: {"direction": "Left"}}),
                f"of {name} is Left",
            )
            for name in ("truncation", "padding")
        ),
        *(
            (lambda f, name=name: edit_json(f / "tokenizer_config.json", **{name: "left"}), f"{name} is 'left'; only")
            for name in ("truncation_side", "padding_side")
        ),
        (lambda f: (f / "tokenizer.json").write_text("[" * 10**5), "nested too deeply"),
        (lambda f: (f / "tokenizer.json").write_bytes(b"\xff"), "not valid JSON"),
        (lambda f: (f / "tokenizer_config.json").write_text("[]"), "not a JSON object"),
        (lambda f: edit_json(f / "tokenizer_config.json", added_tokens_decoder=[1]), None),
        (lambda f: (f / "added_tokens.json").write_text("3"), "not a JSON object"),
        (lambda f: (f / "added_tokens.json").write_text('{"a": NaN}'), "must have a whole number for each token"),
    ],
)
def test_a_tokenizer_that_cannot_work_is_refused(bert, change, message):
    change(bert)
    if message is None:
        assert len(read(bert)(["the cat"], 16)[0]) == 4
        return
    with pytest.raises(UserError, match=rf"^{bert}.*: .*{message}"):
        read(bert)


def test_another_model_s_padding_is_refused_where_positions_depend_on_it(bert):
    assert read(bert, pad_token_id=3)  # paraphrase-multilingual-MiniLM states another one, and only its mask counts
    with pytest.raises(UserError, match=r"tokenizer of another model: \[PAD\] is token 0, in config.json it is 1"):
        read(bert, "roberta")
    vocabulary = {"[CLS]": 2, "[SEP]": 3, "[UNK]": 1, "a": 4}
    edit_model(bert, vocab=vocabulary)
    with pytest.raises(UserError, match=r"of another model: has no padding, in config.json it is 1"):
        read(bert, "mpnet")


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


def sequence(*parts):
    return {"type": "Sequence", "normalizers": list(parts)}


@pytest.mark.parametrize(
    ("normalizer", "expected"),
    [
        (None, 1),
        ({"type": "Lowercase"}, 3),
        (replace("a", "aa"), 2),
        (replace("ab", "a"), 1),
        (replace("", "aa"), 3),
        ({"type": "Replace", "pattern": {"Regex": "a|"}, "content": "b"}, 2),
        ({"pattern": "a", "content": "aaa"}, 3),
        ({"type": "Prepend", "prepend": "▁"}, 2),
        (sequence(replace("a", "aa"), sequence(replace("a", "aa"), {"type": "NFKC"})), 72),
        (sequence(*[replace("a", "aa")] * 40), 2**40),
        (sequence(*[replace("a", "aa")] * 4000), float("inf")),
        ([{"normalizers": 3}, "a", 3], 1),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value)[:9],
)
def test_the_growth_of_a_text(normalizer, expected):
    assert growth(normalizer) == expected


def test_a_normalizer_without_bounds_is_refused_before_it_is_used(bert):
    edit_json(bert / "tokenizer.json", normalizer=sequence(*[replace("a", "aa")] * 60))
    with pytest.raises(UserError, match=rf"normalizer can make 1e\+18 characters of one; {MOST_GROWTH} are allowed"):
        read(bert)
    (bert / "simcse_jax.json").unlink()  # transformers would read it
    with pytest.raises(UserError, match="normalizer can make"):
        read(bert)
    edit_json(bert / "tokenizer.json", normalizer=sequence(*[replace("a", "aa")] * 3))
    (bert / "simcse_jax.json").write_text("{}")
    assert len(read(bert)(["cat"], 16)[0]) == 3


def test_the_tokens_of_a_folder(tmp_path):
    assert stated_tokens(tmp_path) is None
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    assert stated_tokens(tmp_path) == {"a"}
    (tmp_path / "vocab.txt").write_bytes(b"b\r\nc ")
    (tmp_path / "added_tokens.json").write_text('{"d": 0}')
    assert stated_tokens(tmp_path) == {"b", "c", "d"}
    (tmp_path / "vocab.txt").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"vocab\.txt: cannot be read"):
        stated_tokens(tmp_path)
    whole = {"model": {"vocab": [["e", 0.5], 3]}, "added_tokens": [{"content": "f"}, 3]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
    (tmp_path / "tokenizer_config.json").write_text('{"added_tokens_decoder": {"1": {"content": "g"}}}')
    assert stated_tokens(tmp_path) >= {"d", "e", "f", "g"}


def test_what_rust_prints_when_it_panics_is_left_out(bert, capfd):
    unknown = {"type": "TemplateProcessing", "single": [CLS, TEXT, CLS], "pair": [], "special_tokens": {}}
    edit_json(bert / "tokenizer.json", post_processor=unknown)
    with pytest.raises(UserError, match=r"tokenizer\.json: not a readable tokenizer: "):
        read(bert)
    assert capfd.readouterr().err == ""


def test_anything_else_that_is_printed_meanwhile_is_kept(capfd):
    with pytest.raises(KeyError), panics_in_a_line():
        os.write(2, b"a warning\n")
        raise KeyError
    assert capfd.readouterr().err == "a warning\n"


def test_sentencepiece_s_file_alone_needs_its_package(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "._spiece.model").write_bytes(b"\0\5")
    with pytest.raises(UserError, match="no vocabulary"):
        check_has_vocabulary(tmp_path)
    (tmp_path / "spiece.model").write_bytes(b"\n")
    with pytest.raises(UserError, match=r"spiece\.model: the package sentencepiece, which reads it, is not installed"):
        check_has_vocabulary(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    check_has_vocabulary(tmp_path)
