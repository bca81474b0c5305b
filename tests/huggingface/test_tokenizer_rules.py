import json

import pytest
from support import CONFIGS
from support.layouts import XLMR, save_tokenizer, write_byte_level, write_unigram, write_word_piece
from support.models import edit_json

from simcse_jax.huggingface.resolve import resolve
from simcse_jax.huggingface.tokenizer import Tokenizer, read_backend
from simcse_jax.huggingface.tokenizer_rules import read_usual, read_whole
from simcse_jax.models.config import EncoderConfig

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


def write_mpnet(folder, old_unk=True, **config):
    """Like microsoft/mpnet-base: BERT's pieces after RoBERTa's special tokens, with or without an <unk>."""
    from tokenizers import AddedToken, Tokenizer, models, processors

    words = (write_bert(folder) / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    words = ["<s>", "<pad>", "</s>", "<unk>", *words, "<mask>"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    backend = Tokenizer(models.WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    special = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>", *["<unk>"] * old_unk]
    flags = {name: {"lstrip": name == "<mask>", "normalized": name == "<unk>"} for name in special}
    backend.add_special_tokens([AddedToken(name, **flags[name]) for name in special])
    ends = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    save_tokenizer(folder, backend, processor=ends, **{"tokenizer_class": "MPNetTokenizer"} | config)
    return of_type(folder, "mpnet")


def same_as_transformers(folder, backend):
    from transformers import AutoTokenizer

    assert backend is not None
    backend.no_truncation()
    theirs = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    theirs.no_padding()
    theirs.no_truncation()
    assert json.loads(backend.to_str()) == json.loads(theirs.to_str())
    for text in TEXTS:
        assert backend.encode(text).ids == theirs.encode(text).ids
    return backend


BERTS = [
    *(({}, file) for file in ("tokenizer.json", "vocab.txt")),
    ({"do_lower_case": False}, "tokenizer.json"),
    ({"tokenize_chinese_chars": False, "strip_accents": False}, "vocab.txt"),
    ({"strip_accents": True, "do_lower_case": False, "tokenizer_class": "BertTokenizerFast"}, "tokenizer.json"),
    ({"tokenizer_class": None, "model_max_length": 512, "unk_token": "[UNK]", "never_split": None}, "vocab.txt"),
]


@pytest.mark.parametrize(("config", "files"), BERTS, ids=str)
def test_usual_bert_folders_are_read_as_transformers_reads_them(config, files, tmp_path):
    folder = write_bert(tmp_path / "m", lowercase=True, **config)
    (folder / "special_tokens_map.json").write_text(json.dumps({"mask_token": "[MASK]"}))
    (folder / ({"tokenizer.json", "vocab.txt"} - {files}).pop()).unlink()
    for kind in ("bert", "distilbert"):
        backend = same_as_transformers(of_type(folder, kind), read_usual(folder))
        assert ("elan" in backend.encode("Elan").tokens) is config.get("do_lower_case", True)


def test_blank_lines_of_a_vocabulary_are_read_as_transformers_reads_them(tmp_path):
    folder = write_bert(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    words = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    words[words.index("z")] = ""
    (folder / "vocab.txt").write_bytes("".join(word + "\r\n" for word in [*words, "", "", ""]).encode())
    backend = same_as_transformers(folder, read_usual(folder))
    assert backend.token_to_id("café") == words.index("café") and backend.encode("z stop").tokens[1] == "[UNK]"
    config = EncoderConfig.from_hugging_face(CONFIGS["bert"] | {"vocab_size": len(words)}, "test")
    (ids,) = Tokenizer(folder, config)(["a cafe"], 9)  # whose weights have no row for the last lines
    assert ids.tolist() == backend.encode("a cafe").ids


@pytest.mark.parametrize("config", [{}, {"add_prefix_space": True, "trim_offsets": False}], ids=str)
def test_usual_roberta_folders_are_read_as_transformers_reads_them(config, tmp_path):
    write_byte_level(tmp_path, tokenizer_class="RobertaTokenizer", **config)
    mask = {"content": "<mask>", "lstrip": True, "rstrip": False, "normalized": True, "single_word": False}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"mask_token": mask, "bos_token": "<s>"}))
    same_as_transformers(of_type(tmp_path, "roberta"), read_usual(tmp_path))


FAST = {"unk_token": "[UNK]", "bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>", "do_lower_case": True}
FAST |= {"tokenizer_class": "MPNetTokenizerFast"}
MPNETS = [({}, "vocab.txt", True), ({}, "tokenizer.json", False), (FAST, "vocab.txt", False)]
MPNETS += [(FAST, "tokenizer.json", True), ({"do_lower_case": False}, "tokenizer.json", True)]


@pytest.mark.parametrize(("config", "removed", "old_unk"), MPNETS, ids=str)
def test_usual_mpnet_folders_are_read_as_transformers_reads_them(old_unk, removed, config, tmp_path):
    folder = write_mpnet(tmp_path / "m", old_unk, **config)
    (folder / "special_tokens_map.json").write_text(json.dumps({"mask_token": "<mask>", "unk_token": "[UNK]"}))
    (folder / removed).unlink()
    backend = same_as_transformers(folder, read_usual(folder))
    assert read_backend(folder)[1] == "<mask>"
    tokens = [backend.id_to_token(number) for number in backend.encode("Stop <mask>").ids]
    assert tokens[0] == "<s>" and tokens[-2:] == ["<mask>", "</s>"]
    assert ("stop" in tokens) is config.get("do_lower_case", True)


def unusual_file(name, content):
    return lambda folder: (folder / name).write_text(json.dumps(content))


def edit_tokenizer(change):
    def edit(folder):
        parts = json.loads((folder / "tokenizer.json").read_text())
        change(parts)
        (folder / "tokenizer.json").write_text(json.dumps(parts))

    return edit


OTHERS = [  # fields of tokenizer_config.json, and of another file
    *({"tokenizer_class": "PreTrainedTokenizerFast"}, {"cls_token": "[SEP]"}, {"do_lower_case": "no"}),
    *({"additional_special_tokens": ["[NEW]"]}, {"added_tokens_decoder": {"0": {"content": "[PAD]", "special": True}}}),
    unusual_file("added_tokens.json", {"[NEW]": 200}),
    unusual_file("special_tokens_map.json", {"sep_token": "[CLS]"}),
    unusual_file("config.json", {"model_type": "roberta"}),
    edit_tokenizer(lambda parts: parts["added_tokens"].append(parts["added_tokens"][4] | {"id": 6, "content": "b"})),
    edit_tokenizer(lambda parts: parts["added_tokens"].pop()),
    edit_tokenizer(lambda parts: parts.pop("model")),
    edit_tokenizer(lambda parts: parts["truncation"].update(direction="Left")),
]
GENERIC = {"tokenizer_class": "PreTrainedTokenizerFast"}
TYPED = {"__type": "AddedToken", "content": "[CLS]"}
BACKEND = {"tokenizer_class": "TokenizersBackend", "mask_token": "[MASK]", "bos_token": None, "do_lower_case": False}
WHOLE = [  # the model type, and fields of tokenizer_config.json and special_tokens_map.json
    ("bert", {}, {}),
    ("modernbert", BACKEND, {}),
    ("bert", {"mask_token": "stop", "cls_token": "b"}, {"mask_token": "[MASK]", "sep_token": "cafe"}),
    ("xlm-roberta", {}, {"cls_token": {"content": "[CLS]", "lstrip": True}}),
]


@pytest.mark.parametrize(("model_type", "config", "names"), WHOLE, ids=str)
def test_a_tokenizer_of_no_model_s_class_is_read_whole_as_transformers_reads_it(model_type, config, names, tmp_path):
    folder = write_bert(tmp_path / "m", lowercase=False, **GENERIC | config)
    unusual_file("special_tokens_map.json", names)(of_type(folder, model_type))
    assert read_whole(folder) is not None
    backend, mask_token = read_backend(folder)
    assert mask_token == "[MASK]" and "V" in backend.encode("V").tokens
    same_as_transformers(folder, backend)


NOT_WHOLE = [
    *({"cls_token": "[NEW]"}, {"cls_token": TYPED}, {"add_bos_token": True}, {"image_token": "stop"}),
    *({"mask_token": "stop"}, {"additional_special_tokens": ["stop"]}),
    {"added_tokens_decoder": {"0": {"content": "[PAD]", "special": True}}},
    unusual_file("config.json", {"model_type": "qwen2"}),
    unusual_file("special_tokens_map.json", {"cls_token": TYPED | {"content": "stop"}}),
    edit_tokenizer(lambda parts: parts["added_tokens"][2].update(special=False)),
    edit_tokenizer(lambda parts: parts.update(post_processor=None)),
    edit_tokenizer(lambda parts: parts["truncation"].update(direction="Left")),
    edit_tokenizer(lambda parts: parts["model"]["vocab"].update({f"w{n}": n for n in range(200, 10**5 + 200)})),
]
LEFT = [*((read_usual, {}, x) for x in OTHERS), *((read_whole, GENERIC | {"cls_token": "[CLS]"}, x) for x in NOT_WHOLE)]


@pytest.mark.parametrize(("read", "own", "change"), LEFT)
def test_other_folders_are_left_to_transformers(read, own, change, tmp_path):
    folder = write_bert(tmp_path / "m", **own | ({} if callable(change) else change))
    if callable(change):
        change(folder)
    assert read(folder) is None


def test_minilm_is_read_as_transformers_reads_it(minilm):
    backend, mask_token = read_backend(resolve(minilm))
    assert mask_token == "[MASK]"
    same_as_transformers(resolve(minilm), backend)


@pytest.mark.parametrize(
    ("model_type", "config"),
    [("xlm-roberta", {"add_prefix_space": False}), ("bert", {"tokenizer_class": "XLMRobertaTokenizerFast"})],
)
def test_sentencepiece_folders_of_xlm_roberta_are_read_as_transformers_reads_them(model_type, config, tmp_path):
    config = {"tokenizer_class": "XLMRobertaTokenizer"} | config
    write_unigram(tmp_path, XLMR, **config)
    backend = same_as_transformers(of_type(tmp_path, model_type), read_usual(tmp_path))
    assert "▁the" in backend.encode("the cat").tokens or config.get("add_prefix_space") is False


def test_other_folders_of_other_kinds_are_left_to_transformers(tmp_path):
    assert read_usual(write_mpnet(tmp_path / "unk", unk_token="<unk>")) is None
    assert read_usual(write_mpnet(tmp_path / "class", tokenizer_class="BertTokenizer")) is None
    write_unigram(tmp_path, XLMR, "XLMRobertaTokenizer", additional_special_tokens=["<x>"])
    assert read_usual(of_type(tmp_path, "xlm-roberta")) is None
    write_unigram(tmp_path, [*XLMR[1:], "<s>"], "XLMRobertaTokenizer")  # its unknown token has another number
    same_as_transformers(tmp_path, read_backend(tmp_path)[0])
