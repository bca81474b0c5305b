"""The tokenizer of a usual BERT, RoBERTa or MPNet folder, as transformers makes it, without importing transformers.

transformers 5 takes vocabulary, merges and added tokens from `tokenizer.json` (BERT's and MPNet's vocabulary also from
`vocab.txt`) and nothing else: normalizer, pre-tokenizer and post-processor are those of the model's class, with the
settings of `tokenizer_config.json`. A folder is usual when that is the whole story: the class is the model's, the
special tokens are the class's own, and no others are added.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcse_jax.storage import read_json

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

SPECIAL_TOKENS = {
    "bert": {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"},
    "roberta": {"unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>", "mask": "<mask>"}
    | {"bos": "<s>", "eos": "</s>"},
    "mpnet": {"unk": "[UNK]", "sep": "</s>", "pad": "<pad>", "cls": "<s>", "mask": "<mask>"}
    | {"bos": "<s>", "eos": "</s>"},
}
OLD_UNK = "<unk>"  # the published MPNets have it beside their own [UNK]
CLASSES = {"bert": "BertTokenizer", "roberta": "RobertaTokenizer", "mpnet": "MPNetTokenizer"}
MODELS = {"bert": "WordPiece", "roberta": "BPE", "mpnet": "WordPiece"}
# Settings, their defaults and what they may be.
WORD_PIECE = {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None}
SETTINGS = {"bert": WORD_PIECE, "roberta": {"add_prefix_space": False, "trim_offsets": True}, "mpnet": WORD_PIECE}
# Fields by which transformers does something else than what stands above.
UNUSUAL = ("auto_map", "fast_tokenizer_files", "init_inputs", "add_bos_token", "add_eos_token", "split_special_tokens")
UNUSUAL += ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")


def read_usual(folder: Path) -> "Tokenizer | None":
    """The tokenizer of a usual folder; None for any other, whatever is unusual or wrong with it."""
    try:
        return _read(folder)
    except Exception:  # transformers, which reads the folder then, tells what is wrong
        return None


def _read(folder: Path) -> "Tokenizer | None":
    model = read_json(folder / "config.json")
    config = _optional(folder / "tokenizer_config.json")
    kind = model.get("model_type")
    stated = config.get("tokenizer_class") or model.get("tokenizer_class") or CLASSES.get(kind)
    if kind not in CLASSES or stated not in (CLASSES[kind], CLASSES[kind] + "Fast"):
        return None
    if any(config.get(field) for field in UNUSUAL) or (folder / "added_tokens.json").exists():
        return None
    names = _optional(folder / "special_tokens_map.json") if "added_tokens_decoder" not in config else {}
    special = SPECIAL_TOKENS[kind]
    for field, value in (*config.items(), *names.items()):
        if field.endswith("_token") and _content(value) != special.get(field.removesuffix("_token"), value):
            return None
        if field.endswith("_token") and field.removesuffix("_token") not in special and value is not None:
            return None
    if any(names.get(field) for field in UNUSUAL):
        return None
    settings = {name: config.get(name, default) for name, default in SETTINGS[kind].items()}
    if not all(isinstance(value, bool) or value is SETTINGS[kind][name] for name, value in settings.items()):
        return None
    whole = folder / "tokenizer.json"
    if whole.is_file():
        parts = json.loads(whole.read_text(encoding="utf-8"))
        tokens = {token.pop("id"): token for token in parts["added_tokens"]}
        decoder = {int(number): token for number, token in config.get("added_tokens_decoder", tokens).items()}
        vocabulary, merges = parts["model"]["vocab"], parts["model"].get("merges")
        contents = {number: token["content"] for number, token in tokens.items()}
        usual = set(special.values()) | ({OLD_UNK} & set(contents.values()) if kind == "mpnet" else set())
        if decoder != tokens or contents != {vocabulary[content]: content for content in usual}:
            return None
        if parts["model"]["type"] != MODELS[kind] or not all(token["special"] for token in tokens.values()):
            return None
    elif kind != "roberta" and not any(isinstance(value, dict) for value in (*config.values(), *names.values())):
        vocabulary, merges = str(folder / "vocab.txt"), None
        tokens = {content: {"content": content, "special": True, "normalized": False} for content in special.values()}
        tokens[special["mask"]]["lstrip"] = kind == "mpnet"
    else:
        return None
    from tokenizers import AddedToken

    added = [AddedToken(**token) for _, token in sorted(tokens.items())]
    if kind == "roberta":
        return _roberta(vocabulary, merges, added, **settings)
    return _word_piece(kind, vocabulary, added, **settings)


def _word_piece(
    kind: str,
    vocabulary: dict[str, int] | str,
    added: "list[AddedToken]",
    do_lower_case: bool,
    tokenize_chinese_chars: bool,
    strip_accents: bool | None,
) -> "Tokenizer | None":
    """BERT's or MPNet's. `vocabulary` may be the path of a `vocab.txt`; None if it lacks a special token."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    model = models.WordPiece if isinstance(vocabulary, dict) else models.WordPiece.from_file
    backend = Tokenizer(model(vocabulary, unk_token="[UNK]"))
    if any(backend.token_to_id(content) is None for content in SPECIAL_TOKENS[kind].values()):
        return None
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=tokenize_chinese_chars,
        strip_accents=strip_accents,
        lowercase=do_lower_case,
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.add_special_tokens(added)
    if kind == "mpnet":
        sep, cls = (("</s>", backend.token_to_id("</s>")), ("<s>", backend.token_to_id("<s>")))
        backend.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets=True, add_prefix_space=False)
        return backend
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(token, backend.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return backend


def _roberta(
    vocabulary: dict[str, int], merges: list, added: "list[AddedToken]", add_prefix_space: bool, trim_offsets: bool
) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in merges]
    backend = Tokenizer(models.BPE(vocabulary, pairs, continuing_subword_prefix="", end_of_word_suffix=""))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(added)
    sep, cls = (("</s>", backend.token_to_id("</s>")), ("<s>", backend.token_to_id("<s>")))
    backend.post_processor = processors.RobertaProcessing(sep, cls, trim_offsets, add_prefix_space)
    return backend


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
