import json

import pytest
from support import CONFIGS
from support.layouts import XLMR, write_unigram

from simcse_jax.huggingface.resolve import resolve
from simcse_jax.huggingface.tokenizer import Tokenizer, read_backend
from simcse_jax.huggingface.tokenizer_rules import read_usual, read_whole
from simcse_jax.models.config import EncoderConfig

TEXTS = ["Élan VITAL, naïve café!", "漢字 kanji", " leading space", "[MASK] <mask> it", "", "don't\tstop\n", "🎸 rock"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
MPNET = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]


def token(number, content, **flags):
    fields = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": content} | fields | flags


def write_bert(folder, lowercase=True, **config):
    """A folder with `tokenizer.json`, `vocab.txt` and `tokenizer_config.json`, like bert-base-uncased."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    folder.mkdir()
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZéÉï漢字!,'"
    words = [*BERT, *letters, *(f"##{letter}" for letter in letters), "elan", "cafe", "café", "stop", "##stop"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    backend = Tokenizer(models.WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens(BERT)
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.enable_truncation(7)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"} | config))
    return folder


def write_roberta(folder, **config):
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

    folder.mkdir()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: n for n, word in enumerate([*ROBERTA, *letters, "do", "Ġs", "Ġst"])}
    backend = Tokenizer(models.BPE(vocabulary, [("d", "o"), ("Ġ", "s"), ("Ġs", "t")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    flags = {"normalized": False, "special": True}
    backend.add_special_tokens([AddedToken(name, lstrip=name == "<mask>", **flags) for name in ROBERTA])
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RobertaTokenizer"} | config))
    return folder


def write_mpnet(folder, old_unk=True, **config):
    """Like microsoft/mpnet-base: BERT's pieces after RoBERTa's special tokens, with or without an <unk>."""
    from tokenizers import AddedToken, Tokenizer, models, processors

    write_bert(folder)
    words = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    words = ["<s>", "<pad>", "</s>", "<unk>", *words, "<mask>"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    backend = Tokenizer(models.WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    backend.add_special_tokens(
        [
            AddedToken(name, lstrip=name == "<mask>", normalized=name == "<unk>", special=True)
            for name in [*MPNET, *(["<unk>"] if old_unk else [])]
        ]
    )
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": "mpnet"}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MPNetTokenizer"} | config))
    return folder


def same_as_transformers(folder, backend):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    theirs.no_padding()
    theirs.no_truncation()
    assert json.loads(backend.to_str()) == json.loads(theirs.to_str())
    for text in TEXTS:
        assert backend.encode(text).ids == theirs.encode(text).ids


BERTS = [
    *(({}, file) for file in ("tokenizer.json", "vocab.txt")),
    ({"do_lower_case": False}, "tokenizer.json"),
    ({"tokenize_chinese_chars": False, "strip_accents": False}, "vocab.txt"),
    ({"strip_accents": True, "do_lower_case": False, "tokenizer_class": "BertTokenizerFast"}, "tokenizer.json"),
    ({"tokenizer_class": None, "model_max_length": 512, "unk_token": "[UNK]", "never_split": None}, "vocab.txt"),
]


@pytest.mark.parametrize(("config", "files"), BERTS, ids=str)
def test_usual_bert_folders_are_read_as_transformers_reads_them(config, files, tmp_path):
    """And a DistilBERT's with the same files."""
    folder = write_bert(tmp_path / "m", lowercase=True, **config)
    (folder / "special_tokens_map.json").write_text(json.dumps({"mask_token": "[MASK]"}))
    (folder / ({"tokenizer.json", "vocab.txt"} - {files}).pop()).unlink()
    for kind in ("bert", "distilbert"):
        (folder / "config.json").write_text(json.dumps({"model_type": kind}))
        backend = read_usual(folder)
        assert backend is not None
        backend.no_truncation()
        same_as_transformers(folder, backend)
        assert ("elan" in backend.encode("Elan").tokens) is config.get("do_lower_case", True)


def test_blank_lines_of_a_vocabulary_are_read_as_transformers_reads_them(tmp_path):
    folder = write_bert(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    words = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    words[words.index("z")] = ""
    (folder / "vocab.txt").write_bytes("".join(word + "\r\n" for word in [*words, "", "", ""]).encode())
    backend = read_usual(folder)
    assert backend is not None
    same_as_transformers(folder, backend)
    assert backend.token_to_id("café") == words.index("café") and backend.encode("z stop").tokens[1] == "[UNK]"
    config = EncoderConfig.from_hugging_face(CONFIGS["bert"] | {"vocab_size": len(words)}, "test")
    (ids,) = Tokenizer(folder, config)(["a cafe"], 9)  # whose weights have no row for the last lines
    assert ids.tolist() == backend.encode("a cafe").ids


@pytest.mark.parametrize("config", [{}, {"add_prefix_space": True, "trim_offsets": False}], ids=str)
def test_usual_roberta_folders_are_read_as_transformers_reads_them(config, tmp_path):
    folder = write_roberta(tmp_path / "m", **config)
    mask = {"content": "<mask>", "lstrip": True, "rstrip": False, "normalized": True, "single_word": False}
    (folder / "special_tokens_map.json").write_text(json.dumps({"mask_token": mask, "bos_token": "<s>"}))
    backend = read_usual(folder)
    assert backend is not None
    same_as_transformers(folder, backend)


FAST = {"unk_token": "[UNK]", "bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>", "do_lower_case": True}
FAST |= {"tokenizer_class": "MPNetTokenizerFast"}
MPNETS = [({}, "vocab.txt", True), ({}, "tokenizer.json", False), (FAST, "vocab.txt", False)]
MPNETS += [(FAST, "tokenizer.json", True), ({"do_lower_case": False}, "tokenizer.json", True)]


@pytest.mark.parametrize(("config", "removed", "old_unk"), MPNETS, ids=str)
def test_usual_mpnet_folders_are_read_as_transformers_reads_them(old_unk, removed, config, tmp_path):
    folder = write_mpnet(tmp_path / "m", old_unk, **config)
    (folder / "special_tokens_map.json").write_text(json.dumps({"mask_token": "<mask>", "unk_token": "[UNK]"}))
    (folder / removed).unlink()
    backend = read_usual(folder)
    assert backend is not None
    same_as_transformers(folder, backend)
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
    edit_tokenizer(lambda parts: parts["added_tokens"].append(token(6, "b"))),
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
    unusual_file("config.json", {"model_type": model_type})(folder)
    unusual_file("special_tokens_map.json", names)(folder)
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


@pytest.mark.parametrize(
    ("read", "own", "change"),
    [
        *((read_usual, {}, each) for each in OTHERS),
        *((read_whole, GENERIC | {"cls_token": "[CLS]"}, x) for x in NOT_WHOLE),
    ],
)
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
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    backend = read_usual(tmp_path)
    assert backend is not None
    same_as_transformers(tmp_path, backend)
    assert "▁the" in backend.encode("the cat").tokens or config.get("add_prefix_space") is False


def test_other_folders_of_other_kinds_are_left_to_transformers(tmp_path):
    assert read_usual(write_mpnet(tmp_path / "unk", unk_token="<unk>")) is None
    assert read_usual(write_mpnet(tmp_path / "class", tokenizer_class="BertTokenizer")) is None
    write_unigram(tmp_path, XLMR, "XLMRobertaTokenizer", additional_special_tokens=["<x>"])
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "xlm-roberta"}))
    assert read_usual(tmp_path) is None
    write_unigram(tmp_path, [*XLMR[1:], "<s>"], "XLMRobertaTokenizer")  # its unknown token has another number
    same_as_transformers(tmp_path, read_backend(tmp_path)[0])
