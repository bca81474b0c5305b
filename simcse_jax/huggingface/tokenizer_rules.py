"""Makes the tokenizer of a usual BERT-like folder as transformers does, without importing it.

transformers 5 takes only vocabulary, merges, SentencePiece's rules and added tokens from `tokenizer.json` (the
vocabulary of WordPiece also from `vocab.txt`): normalizer, pre-tokenizer and post-processor come from the model's
class, with the settings of `tokenizer_config.json`. A folder is usual if nothing else plays a part: the class is the
model's, the special tokens are the class's own, and no others are added.

A class that is no model's takes all of `tokenizer.json`, and makes the tokens that the other files name special.
"""

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from simcse_jax.host.storage import read_json

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.processors import PostProcessor

BERT_TOKENS = {"unk": "[UNK]", "sep": "[SEP]", "pad": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
ROBERTA_TOKENS = {"unk": "<unk>", "sep": "</s>", "pad": "<pad>", "cls": "<s>", "mask": "<mask>"}
ROBERTA_TOKENS |= {"bos": "<s>", "eos": "</s>"}
SPECIAL_TOKENS = {
    "bert": BERT_TOKENS,
    **dict.fromkeys(("distilbert", "ernie", "electra", "nomic_bert"), BERT_TOKENS),
    **dict.fromkeys(("roberta", "xlm-roberta"), ROBERTA_TOKENS),
    "mpnet": ROBERTA_TOKENS | {"unk": "[UNK]"},
}
MASK_TOKENS = tuple(special["mask"] for special in SPECIAL_TOKENS.values())  # for folders whose files state none
OLD_UNK = "<unk>"  # in published MPNets, in addition to their [UNK]
# The tokenizers of a model's folder; the first one where the folder names none.
CLASSES = {
    **dict.fromkeys(("bert", "ernie", "electra", "nomic_bert"), ("BertTokenizer",)),
    "distilbert": ("DistilBertTokenizer", "BertTokenizer"),  # the same
    "roberta": ("RobertaTokenizer",),
    "mpnet": ("MPNetTokenizer",),
    "xlm-roberta": ("XLMRobertaTokenizer",),
}
MODELS = dict.fromkeys(CLASSES, "WordPiece") | {"roberta": "BPE", "xlm-roberta": "Unigram"}
# Of no model; and the models whose tokenizers may be of these. For others transformers takes no notice of the class.
WHOLE = ("PreTrainedTokenizerFast", "TokenizersBackend")
OF_ANY_CLASS = (*CLASSES, "modernbert", "albert", "camembert")
NAMED = {f"{name}_token" for name in ROBERTA_TOKENS}
LARGEST = 100_000  # of a larger vocabulary transformers looks whether it is Mistral's, and then mends its rules
# Settings and their defaults; the types are those of possible values.
WORD_PIECE: dict[str, bool | None] = {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None}
ROBERTA: dict[str, bool | None] = {"add_prefix_space": False, "trim_offsets": True}
XLM_ROBERTA: dict[str, bool | None] = {"add_prefix_space": True}
SETTINGS = dict.fromkeys(CLASSES, WORD_PIECE) | {"roberta": ROBERTA, "xlm-roberta": XLM_ROBERTA}
# With these fields transformers does something else.
UNUSUAL = (
    *("auto_map", "fast_tokenizer_files", "init_inputs", "add_bos_token", "add_eos_token", "split_special_tokens"),
    *("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"),
)


class Unusual(Exception):
    """The folder must be read by transformers."""


class TokenizerParts(NamedTuple):
    """The parts of a tokenizer, apart from its settings."""

    vocabulary: dict[str, int] | list[tuple[str, float]] | str  # Unigram's pairs, or the path of a `vocab.txt`
    merges: list | None  # BPE's
    added: list[dict[str, Any]]  # the fields of each `AddedToken`, in order
    rules: bytes | None = None  # for characters, as SentencePiece compiled them


def read_usual(folder: Path) -> "Tokenizer | None":
    """The tokenizer of a usual folder; None for any other folder, unusual or damaged."""
    try:
        return _read(folder)
    except Exception:  # `Unusual`, or a damaged file, which is then read in another way and its fault reported
        return None


def read_whole(folder: Path) -> "Tokenizer | None":
    """The tokenizer of a folder whose class is no model's; None for any other folder, unusual or damaged."""
    try:
        return _whole(folder)
    except Exception:
        return None


def _files(folder: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The contents of `config.json`, `tokenizer_config.json` and, where it is read, `special_tokens_map.json`."""
    model, config = read_json(folder / "config.json"), _optional(folder / "tokenizer_config.json")
    names = _optional(folder / "special_tokens_map.json") if "added_tokens_decoder" not in config else {}
    return model, config, names


def _check_fields(folder: Path, config: dict[str, Any], names: dict[str, Any]) -> None:
    if (folder / "added_tokens.json").exists() or any(config.get(field) or names.get(field) for field in UNUSUAL):
        raise Unusual


def _read(folder: Path) -> "Tokenizer":
    from tokenizers import AddedToken

    model, config, names = _files(folder)
    kind = _check_class(model, config)
    _check_fields(folder, config, names)
    _check_special_tokens(kind, config, names)
    settings = _settings(kind, config)
    if (folder / "tokenizer.json").is_file():
        parts = _parts_of_tokenizer_json(folder / "tokenizer.json", kind, config)
    elif MODELS[kind] != "WordPiece" or any(isinstance(value, dict) for value in (*config.values(), *names.values())):
        raise Unusual
    else:
        parts = _parts_of_vocabulary(folder / "vocab.txt", kind)
    added = [AddedToken(**token) for token in parts.added]
    if kind == "roberta":
        assert isinstance(parts.vocabulary, dict) and parts.merges is not None
        return _roberta(parts.vocabulary, parts.merges, added, **settings)
    if isinstance(parts.vocabulary, list):
        return _unigram(parts.vocabulary, parts.rules, added, **settings)
    return _word_piece(kind, parts.vocabulary, added, **settings)


def _whole(folder: Path) -> "Tokenizer":
    """The tokenizer of `tokenizer.json`, with the tokens that the other files name as special ones."""
    from tokenizers import AddedToken, Tokenizer

    model, config, names = _files(folder)
    _check_fields(folder, config, names)
    stated_class = config.get("tokenizer_class") or model.get("tokenizer_class")
    if stated_class not in WHOLE or model.get("model_type") not in OF_ANY_CLASS:
        raise Unusual
    whole, tokens = _tokenizer_json(folder / "tokenizer.json", config)
    if not whole.get("post_processor"):
        raise Unusual
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    special = {token["content"]: token["special"] for token in tokens.values()}
    named = {field: value for field, value in config.items() if field.endswith("_token")}
    # A map's objects are the file's own tokens; others would be added with flags of theirs.
    named |= {name: _content(value) if _content(value) in special else value for name, value in names.items()}
    named = {field: content for field, content in named.items() if content}
    for field, content in named.items():
        if field not in NAMED or not isinstance(content, str) or not special.get(content, True):
            raise Unusual
        if backend.token_to_id(content) is None:
            raise Unusual
    if backend.get_vocab_size() > LARGEST:
        raise Unusual
    backend.add_special_tokens(
        [AddedToken(content, normalized=False, special=True) for content in named.values() if content not in special]
    )
    added = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    if named.get("mask_token") not in (None, next((token for token in MASK_TOKENS if token in added), None)):
        raise Unusual
    return backend


def _check_class(model: dict[str, Any], config: dict[str, Any]) -> str:
    """The model's type; the tokenizer's class must be the one for this type, or XLM-RoBERTa's for a BERT."""
    kind = model.get("model_type", "")
    stated = config.get("tokenizer_class") or model.get("tokenizer_class")
    if kind == "bert" and str(stated).removesuffix("Fast") in CLASSES["xlm-roberta"]:
        kind = "xlm-roberta"  # as in multilingual-e5-small
    if kind not in CLASSES or (stated and str(stated).removesuffix("Fast") not in CLASSES[kind]):
        raise Unusual
    return kind


def _check_special_tokens(kind: str, config: dict[str, Any], names: dict[str, Any]) -> None:
    special = SPECIAL_TOKENS[kind]
    for field, value in (*config.items(), *names.items()):
        if field.endswith("_token") and _content(value) != special.get(field.removesuffix("_token")):
            raise Unusual


def _settings(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    settings = {name: config.get(name, default) for name, default in SETTINGS[kind].items()}
    if not all(isinstance(value, bool) or value is SETTINGS[kind][name] for name, value in settings.items()):
        raise Unusual
    return settings


def _parts_of_tokenizer_json(path: Path, kind: str, config: dict[str, Any]) -> TokenizerParts:
    """The added tokens must be the class's special tokens."""
    whole, tokens = _tokenizer_json(path, config)
    vocabulary = whole["model"]["vocab"]
    numbers = vocabulary
    if MODELS[kind] == "Unigram":
        vocabulary = [(str(piece), float(score)) for piece, score in vocabulary]
        numbers = {piece: number for number, (piece, _) in enumerate(vocabulary)}
    contents = {number: token["content"] for number, token in tokens.items()}
    usual = set(SPECIAL_TOKENS[kind].values()) | ({OLD_UNK} & set(contents.values()) if kind == "mpnet" else set())
    if contents != {numbers[content]: content for content in usual}:
        raise Unusual
    if whole["model"]["type"] != MODELS[kind] or not all(token["special"] for token in tokens.values()):
        raise Unusual
    added = [token for _, token in sorted(tokens.items())]
    return TokenizerParts(vocabulary, whole["model"].get("merges"), added, _rules(whole.get("normalizer")))


def _tokenizer_json(path: Path, config: dict[str, Any]) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """The file, and its added tokens by number: those listed in `tokenizer_config.json`, if any."""
    whole = read_json(path)
    tokens = {token.pop("id"): token for token in whole["added_tokens"]}
    listed = {int(number): token for number, token in config.get("added_tokens_decoder", tokens).items()}
    from_the_left = any("left" in str(whole.get(field)).lower() for field in ("truncation", "padding"))
    if from_the_left or listed != tokens:
        raise Unusual
    return whole, tokens


def _rules(normalizer: dict[str, Any] | None) -> bytes | None:
    """SentencePiece's rules in a normalizer or in the first part of a sequence that has some."""
    parts = normalizer.get("normalizers", [normalizer]) if normalizer else []
    texts = (part["precompiled_charsmap"] for part in parts if part["type"] == "Precompiled")
    return next((base64.b64decode(text) for text in texts), None)


def _parts_of_vocabulary(path: Path, kind: str) -> TokenizerParts:
    special = SPECIAL_TOKENS[kind]
    tokens = {content: {"content": content, "special": True, "normalized": False} for content in special.values()}
    tokens[special["mask"]]["lstrip"] = kind == "mpnet"
    return TokenizerParts(str(path), None, [token for _, token in sorted(tokens.items())])


def _word_piece(
    kind: str,
    vocabulary: dict[str, int] | str,
    added: "list[AddedToken]",
    do_lower_case: bool,
    tokenize_chinese_chars: bool,
    strip_accents: bool | None,
) -> "Tokenizer":
    """BERT's or MPNet's tokenizer. The vocabulary must have the special tokens."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    read = models.WordPiece if isinstance(vocabulary, dict) else models.WordPiece.from_file
    backend = Tokenizer(read(vocabulary, unk_token="[UNK]"))  # type: ignore[arg-type]
    if any(backend.token_to_id(content) is None for content in SPECIAL_TOKENS[kind].values()):
        raise Unusual
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
        backend.post_processor = _roberta_processing(backend, trim_offsets=True, add_prefix_space=False)
    else:
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS]:0 $A:0 [SEP]:0",
            pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
            special_tokens=[_numbered(backend, token) for token in ("[CLS]", "[SEP]")],
        )
    return backend


def _roberta(
    vocabulary: dict[str, int], merges: list, added: "list[AddedToken]", add_prefix_space: bool, trim_offsets: bool
) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    pairs = [(a, b) for a, b in (merge.split(" ") if isinstance(merge, str) else merge for merge in merges)]
    backend = Tokenizer(models.BPE(vocabulary, pairs, continuing_subword_prefix="", end_of_word_suffix=""))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(added)
    backend.post_processor = _roberta_processing(backend, trim_offsets, add_prefix_space)
    return backend


def _unigram(
    vocabulary: list[tuple[str, float]], rules: bytes | None, added: "list[AddedToken]", add_prefix_space: bool
) -> "Tokenizer":
    """XLM-RoBERTa's tokenizer, a SentencePiece model."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    backend = Tokenizer(models.Unigram(vocabulary, unk_id=3, byte_fallback=False))  # 3 in transformers' code
    if rules is not None:
        backend.normalizer = normalizers.Precompiled(rules)
    scheme: Literal["always", "never"] = "always" if add_prefix_space else "never"
    words = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), words])
    backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
    backend.add_special_tokens(added)
    backend.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A", "</s>"],
        pair=["<s>", "$A", "</s>", "</s>", "$B", "</s>"],
        special_tokens=[_numbered(backend, token) for token in ("<s>", "</s>")],
    )
    return backend


def _roberta_processing(backend: "Tokenizer", trim_offsets: bool, add_prefix_space: bool) -> "PostProcessor":
    from tokenizers import processors

    sep, cls = _numbered(backend, "</s>"), _numbered(backend, "<s>")
    return processors.RobertaProcessing(sep, cls, trim_offsets=trim_offsets, add_prefix_space=add_prefix_space)


def _numbered(backend: "Tokenizer", token: str) -> tuple[str, int]:
    number = backend.token_to_id(token)
    if number is None:
        raise Unusual
    return token, number


def _content(token: Any) -> Any:
    return token.get("content") if isinstance(token, dict) else token


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
