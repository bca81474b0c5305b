import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from support import CONFIGS, ROOT, write_model
from support.layouts import XLMR, sentences_of_scripts, write_byte_level, write_unigram, write_word_piece
from support.models import edit_json

from simcse_jax.errors import UserError
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.huggingface.tokenizer import Tokenizer, read_backend
from simcse_jax.models.config import EncoderConfig


def read(folder, kind="bert", **changes):
    return Tokenizer(folder, EncoderConfig.from_hugging_face(CONFIGS[kind] | changes, "test"))


@pytest.mark.slow
def test_transformers_is_not_imported_for_a_usual_model(minilm):
    slow = "{'transformers', 'scipy.stats'} & set(sys.modules)"  # each takes a second or more to import
    code = f"import sys; from simcse_jax import SimCSE; SimCSE({minilm!r}); print({slow})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr


def test_cut_sentences_are_reported_prompts_counted_and_a_tokenizer_in_another_process_is_the_same(tiny_bert):
    tokenizer = read(tiny_bert)
    tokens, cut = tokenizer.tokenize(["the cat", "the cat sat", "the cat sat on", "the cat " * 5], 5)
    assert [len(ids) for ids in tokens] == [4, 5, 5, 5] and cut == {2: 1, 3: 7}
    np.testing.assert_array_equal(tokens[1][:4], tokens[2][:4])
    assert [tokenizer.count_prompt(prompt, 8) for prompt in ("", "the ", "the cat ")] == [0, 2, 3]
    with pytest.raises(UserError, match="only 10 rows"):  # of another model
        read(tiny_bert, vocab_size=10)
    tokenizer = read(tiny_bert)
    sent = pickle.loads(pickle.dumps(tokenizer))
    assert sent._where == str(tiny_bert / "tokenizer.json")
    np.testing.assert_array_equal(sent(["the cat"], 16)[0], tokenizer(["the cat"], 16)[0])


def test_rows_are_padded_on_the_right_words_counted_and_lower_case_obeyed_where_it_is_asked_for(tmp_path):
    tokenizer = read(write_model(tmp_path / "m", "roberta"), "roberta")
    ids, mask = tokenizer.pad(tokenizer(["the cat", ""], 16), 5)
    assert ids[:, 3:].tolist() == [[2, 1], [1, 1]] and mask.tolist() == [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]]
    assert ids.dtype == mask.dtype == np.int32
    assert [words.tolist() for words in tokenizer.words(["the cat", ""], 16)] == [[-1, 0, 1, -1], [-1, -1]]
    assert [tokenizer.first_tokens([" THE cat sat ", ""], n) for n in (1, 2)] == [[" THE", ""], [" THE cat", ""]]
    assert tokenizer.first_tokens([" THE cat sat "], 3) == [" THE cat sat "]
    folder = write_model(tmp_path / "bert", "bert")
    content = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(content | {"normalizer": None}))
    (upper,) = read(folder)(["THE cat"], 8)
    for normalizer in (None, {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Lowercase"}):
        (folder / "tokenizer.json").write_text(json.dumps(content | {"normalizer": normalizer}))
        (folder / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
        tokenizer = read(folder)
        (lower,) = tokenizer(["THE cat"], 8)
        np.testing.assert_array_equal(lower, tokenizer(["the cat"], 8)[0])
        assert upper[1] != lower[1] and upper[2] == lower[2]


TEXTS = ["Élan VITAL, naïve café!", "漢字 kanji", " leading space", "[MASK] <mask> it", "", "don't\tstop\n", "🎸 rock"]
LETTERS = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZéÉï漢字!,'", "elan", "cafe", "café", "stop"]


def of_type(folder, model_type):
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return folder


def write_bert(folder, lowercase=True, **config):
    """A folder with `tokenizer.json`, `vocab.txt` and `tokenizer_config.json`, like bert-base-uncased."""
    folder.mkdir()
    write_word_piece(folder, lowercase, LETTERS, **{"tokenizer_class": "BertTokenizer"} | config)
    cut = {"direction": "Right", "max_length": 7, "strategy": "LongestFirst", "stride": 0}
    edit_json(folder / "tokenizer.json", truncation=cut)
    return of_type(folder, "bert")


def same_as_transformers(folder):
    from transformers import AutoTokenizer

    backend, _ = read_backend(folder)
    theirs = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    theirs.no_padding()
    theirs.no_truncation()
    for text in [*TEXTS, *sentences_of_scripts(200)]:
        assert backend.encode(text).ids == theirs.encode(text).ids
    return backend


BERTS = [
    *(({}, file) for file in ("tokenizer.json", "vocab.txt")),
    ({"do_lower_case": False}, "tokenizer.json"),
    ({"tokenize_chinese_chars": False, "strip_accents": False}, "vocab.txt"),
    ({"tokenize_chinese_chars": False, "strip_accents": False}, "tokenizer.json"),
    ({"strip_accents": True, "do_lower_case": False, "tokenizer_class": "BertTokenizerFast"}, "tokenizer.json"),
    ({"tokenizer_class": None, "model_max_length": 512, "unk_token": "[UNK]", "never_split": None}, "vocab.txt"),
]


@pytest.mark.parametrize(("config", "files"), BERTS, ids=str)
def test_bert_folders_are_read_as_transformers_reads_them(config, files, tmp_path):
    folder = write_bert(tmp_path / "m", lowercase=True, **config)
    (folder / "special_tokens_map.json").write_text(json.dumps({"mask_token": "[MASK]"}))
    (folder / ({"tokenizer.json", "vocab.txt"} - {files}).pop()).unlink()
    assert ("elan" in same_as_transformers(folder).encode("Elan").tokens) is config.get("do_lower_case", True)


def test_blank_lines_of_a_vocabulary_are_read_as_transformers_reads_them(tmp_path):
    folder = write_bert(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    words = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    words[words.index("z")] = ""
    (folder / "vocab.txt").write_bytes("".join(word + "\r\n" for word in [*words, "", "", ""]).encode())
    backend = same_as_transformers(folder)
    assert backend.token_to_id("café") == words.index("café") and backend.encode("z stop").tokens[1] == "[UNK]"
    (ids,) = read(folder, vocab_size=len(words))(["a cafe"], 9)  # whose weights have no row for the last lines
    assert ids.tolist() == backend.encode("a cafe").ids


@pytest.mark.parametrize("config", [{}, {"add_prefix_space": True, "trim_offsets": False}], ids=str)
def test_roberta_folders_are_read_as_transformers_reads_them(config, tmp_path):
    write_byte_level(tmp_path, tokenizer_class="RobertaTokenizer", **config)
    mask = {"content": "<mask>", "lstrip": True, "rstrip": False, "normalized": True, "single_word": False}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"mask_token": mask, "bos_token": "<s>"}))
    same_as_transformers(of_type(tmp_path, "roberta"))
    assert read_backend(tmp_path)[1] == "<mask>"
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["model"]["dropout"] = 0.9  # of merges, at random
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    assert read_backend(tmp_path)[0].model.dropout is None


BACKEND = {"tokenizer_class": "TokenizersBackend", "mask_token": "[MASK]", "bos_token": None, "do_lower_case": False}
WHOLE = [  # the model type, and fields of tokenizer_config.json and special_tokens_map.json
    ("bert", {}, {}),
    ("modernbert", BACKEND, {}),
    ("modernbert", {"tokenizer_class": "BertTokenizer"}, {}),
    ("bert", {"tokenizer_class": "OwnTokenizer"}, {}),
    ("bert", {"mask_token": "stop", "cls_token": "b"}, {"mask_token": "[MASK]", "sep_token": "cafe"}),
    ("xlm-roberta", {}, {"cls_token": {"content": "[CLS]", "lstrip": True}}),
]


@pytest.mark.parametrize(("model_type", "config", "names"), WHOLE, ids=str)
def test_a_tokenizer_of_no_model_s_class_is_read_as_transformers_reads_it(model_type, config, names, tmp_path):
    folder = write_bert(tmp_path / "m", lowercase=False, **{"tokenizer_class": "PreTrainedTokenizerFast"} | config)
    (of_type(folder, model_type) / "special_tokens_map.json").write_text(json.dumps(names))
    assert read_backend(folder)[1] == "[MASK]" and "V" in same_as_transformers(folder).encode("V").tokens


def test_minilm_is_read_as_transformers_reads_it(minilm):
    same_as_transformers(resolve(minilm))


def test_sentencepiece_folders_of_xlm_roberta_are_read_as_transformers_reads_them(tmp_path):
    write_unigram(tmp_path, XLMR, tokenizer_class="XLMRobertaTokenizerFast")
    assert "▁the" in same_as_transformers(of_type(tmp_path, "bert")).encode("the cat").tokens


def test_a_folder_without_a_vocabulary_or_with_another_one_is_refused(tmp_path):
    bert = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    files = [
        ({"._spiece.model": "x"}, "no vocabulary; it must have tokenizer.json, vocab.txt"),
        ({"vocab.json": "{}"}, "no vocabulary; it must have .* vocab.json and merges.txt"),
        ({"vocab.txt": "\n".join(bert)}, "its last token is 4, its weights have 40 rows"),
        ({"vocab.txt": "\n".join(map(str, range(40)))}, r"not a readable tokenizer: .*Missing \[UNK\]"),
        *(
            ({"tokenizer.json": content}, "/tokenizer.json: not a readable tokenizer")
            for content in ("{}", "", "[" * 10**5)
        ),
        ({"tokenizer_config.json": '{"truncation_side": "left"}'}, "truncation_side is not 'right'"),
    ]
    for place, (contents, message) in enumerate(files):
        folder = tmp_path / f"m{place}"
        folder.mkdir()
        for name, content in ({"config.json": json.dumps(CONFIGS["bert"])} | contents).items():
            (folder / name).write_text(content)
        with pytest.raises(UserError, match=rf"^{folder}.*{message}"):
            read(folder)
    with open(tmp_path / "tokenizer.json", "wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UserError, match=r"tokenizer\.json: has 1,073,741,824 bytes; a tokenizer's file has at most"):
        read(tmp_path)


def ends(*parts, number=2):
    special = {"[CLS]": {"id": "[CLS]", "ids": [number], "tokens": ["[CLS]"]}}
    fields = {"type": "TemplateProcessing", "single": list(parts), "pair": [], "special_tokens": special}
    return {"post_processor": fields}


CLS, TEXT = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
MODEL = {"type": "WordLevel", "unk_token": "[UNK]"}
CANNOT = [  # fields of tokenizer.json, and what the refusal says of them
    *(({"post_processor": None}, "no tokens at the ends"), (ends(TEXT), "no tokens at the ends")),
    (ends(CLS, TEXT, CLS, number=99), "has token 99, its weights only 40 rows"),
    *((fields, "not a readable tokenizer") for fields in ({"post_processor": {"type": "None"}}, {"model": "x"})),
    (ends(CLS) | {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}, "not a readable tokenizer"),
    ({"model": MODEL | {"vocab": {"[CLS]": 2, "[SEP]": 3}}}, "not a readable tokenizer.*Missing"),
    ({"model": MODEL | {"vocab": {"[CLS]": 2, "[SEP]": 3, "[UNK]": 1, "a": 99}}}, "has token 99"),
]


@pytest.mark.parametrize(("fields", "message"), CANNOT, ids=str)
def test_a_tokenizer_that_cannot_work_is_refused_in_one_line(tiny_bert, fields, message, tmp_path, capfd):
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        (tmp_path / name).write_bytes((tiny_bert / name).read_bytes())
    edit_json(tmp_path / "tokenizer.json", **fields)
    with pytest.raises(UserError, match=rf"^{tmp_path / 'tokenizer.json'}: .*{message}"):
        read(tmp_path)
    assert capfd.readouterr().err == ""  # not what Rust prints when it panics
