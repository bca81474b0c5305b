"""Tiny folders with the layouts of well-known models: their files, fields and tensors, with random numbers."""

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load_file, save_file

from simcse_jax.huggingface.weight_names import NAMES
from support import CONFIGS, write_model
from support.pickles import Call, archive, storage, tensor

# SentencePiece's rules for a handful of characters, as it compiles them: ﬁ to fi, wide letters, the ideographic space.
CHARSMAP = zlib.decompress(
    base64.b64decode(
        "eNoV03ds10UUAPDLF0jAVP4kCkqYoiBFZUPZIlOUoTIFVEoLsodFEVqRPbRY2aMoQ5SlMrVllFVAZe+NAkXFgahs+Pwu+eTdvbtccrn3Qv4QQly+"
        "kDMpCpkFQmykps6JwuKHQ7CVmlknhIKxXMEojMqLQmrJELKci+SyrkchOykKadaFrReID4lphUJIz41CnHkRFz7KIxSjKI/zGMsSolBc/HlhFC5kRKG0"
        "eSnKUoZyPMFTPEkFyvNnShSeFisRz7M8Q2WeoypVqE41alKD2tTCk0IC9ahLA+rTiIY05nma8ALNaEoLmvMiLXmJVrTmZdrShldox2u8Sgfa04mOdKEz"
        "XXmd7nTjTd6gB2/Rk0SSSaI3vejD2/SjLwPozyAGMoTBvMNQhpHCe7zL+wxnJCNIi306o/iA0XzIWMYwnnFMZAKTmcRHTCGdj/mEqXxKBtOZxkxmMJtZ"
        "zGUO85nHAjL5nM9YxEKWsJilfMFXfMnyWO2wkhV8zSq+5RvWsJp1rGUD6/me78gmi01sZAub2UoO29nGTnawi1z2sJsf+YG9/MR+9nGQAxzmEEc5wnGO"
        "cZITnOYUZznDec7F+oALXOQXLnOJK+TxG79yld9jfcAf/M1f/MM1/uU6//MfN7nBbW5xlzvc5x4lQsUQHx+vjxqoxcTk8AD145du"
    )
)
SCRIPTS = {  # the first and the last letter of a range
    "Latin": "az",
    "Latin with accents": "àÿ",
    "Cyrillic": "ая",
    "Greek": "αω",
    "Arabic": "بي",
    "Hebrew": "את",
    "Devanagari": "कह",
    "Thai": "กฮ",
    "Han": "一丠",
    "Kana": "あん",
    "Hangul": "가각",
}
APART = ("Thai", "Han", "Kana")  # written without spaces between words


def sentences_of_scripts(count: int = 2000, seed: int = 0) -> list[str]:
    """Made-up sentences of ten scripts and more, in turn, with punctuation, capitals and other characters."""
    generator, made = np.random.default_rng(seed), []
    for number in range(count):
        name = list(SCRIPTS)[number % len(SCRIPTS)]
        first, last = map(ord, SCRIPTS[name])
        letters = [chr(code) for code in range(first, last + 1)]
        words = ["".join(generator.choice(letters, generator.integers(1, 9))) for _ in range(generator.integers(1, 12))]
        text = ("" if name in APART else " ").join(words)
        marks = ["", ".", "!", " …", "。", " ﬁ Ａ①", "\u3000x", "  é", "🎸", "<mask>", "[MASK]"]
        marks += ["``it''", " don't", "\n"]
        text += str(generator.choice(marks))
        made.append(text.title() if number % 5 == 0 else text)
    return made


def letters_of_scripts() -> list[str]:
    """All letters of the scripts but the last one of each, which a vocabulary made of these does not know."""
    return [chr(code) for first, last in SCRIPTS.values() for code in range(ord(first), ord(last))]


def write_unigram(folder: Path, special: list[str], tokenizer_class: str | None, **settings: object) -> int:
    """SentencePiece's model as `tokenizer.json` has it, with the special tokens first; returns the number of tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    letters = [*letters_of_scripts(), *"ABCDEFGHIJKLMNOPQRSTUVWXYZ.!'\"-1"]
    pieces = ["▁", *(f"▁{letter}" for letter in letters[::2]), *letters, "▁the", "▁cat", "do", "▁da", "что", "ing"]
    vocabulary = [(name, 0.0) for name in special] + [(piece, -1.0 - n / 50) for n, piece in enumerate(pieces)]
    unknown = next(n for n, name in enumerate(special) if name == "<unk>")
    backend = Tokenizer(models.Unigram(vocabulary, unk_id=unknown, byte_fallback=False))
    backend.normalizer = normalizers.Precompiled(CHARSMAP)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    backend.decoder = decoders.Metaspace()
    cls, sep = ("[CLS]", "[SEP]") if "[CLS]" in special else ("<s>", "</s>")
    mask = "[MASK]" if "[CLS]" in special else "<mask>"
    for name in special:
        if "NOTUSED" not in name:
            backend.add_special_tokens([AddedToken(name, lstrip=name == mask, normalized=False, special=True)])
    ends = [(name, special.index(name)) for name in (cls, sep)]
    backend.post_processor = processors.TemplateProcessing(single=f"{cls} $A {sep}", special_tokens=ends)
    backend.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": tokenizer_class, "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": mask}
    config |= {"cls_token": cls, "sep_token": sep, "model_max_length": 64} | settings
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(vocabulary)


def write_word_piece(folder: Path, **settings: object) -> int:
    """BERT's tokenizer for these scripts, as `tokenizer.json` and `vocab.txt`; returns the number of tokens."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    letters = [*letters_of_scripts(), *"ABCDEFGHIJKLMNOPQRSTUVWXYZ.!'`-1"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*special, *letters, *(f"##{letter}" for letter in letters), "the", "##ing"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    backend = Tokenizer(models.WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=bool(settings.get("do_lower_case", True)))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens(special)
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 64} | settings))
    return len(words)


MERGES = [("d", "o"), ("Ġ", "s"), ("t", "h"), ("Ġ", "th"), ("Ð", "°")]


def write_modernbert(folder: Path) -> int:
    """ModernBERT's tokenizer, as `tokenizer.json`: bytes, then BERT's special tokens; returns the number of tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: n for n, word in enumerate([*letters, *("".join(pair) for pair in MERGES)])}
    backend = Tokenizer(models.BPE(vocabulary, MERGES))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    backend.add_special_tokens([AddedToken(name, lstrip=name == "[MASK]", normalized=False) for name in special])
    ends = [(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    backend.save(str(folder / "tokenizer.json"))
    config = {f"{name.strip('[]').lower()}_token": name for name in special}
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": True}
    config |= {"model_input_names": ["input_ids", "attention_mask"], "model_max_length": 64}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(vocabulary) + len(special)


QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write_qwen(folder: Path) -> int:
    """Qwen3-Embedding's tokenizer, as `tokenizer.json`: bytes, the end token after a text; returns their number."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: n for n, word in enumerate([*letters, *("".join(pair) for pair in MERGES)])}
    backend = Tokenizer(models.BPE(vocabulary, MERGES))
    backend.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN_SPLIT), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in special])
    end = (special[0], backend.token_to_id(special[0]))
    ends = processors.TemplateProcessing(single=f"$A {special[0]}", special_tokens=[end])
    backend.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), ends])
    backend.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "Qwen2Tokenizer", "pad_token": special[0], "eos_token": special[2], "unk_token": None}
    config |= {"padding_side": "left", "model_max_length": 64, "add_prefix_space": False, "bos_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(vocabulary) + len(special)


def write_sentence_piece_bytes(folder: Path, special: list[str], config: dict[str, object], single: str) -> int:
    """Gemma's or Llama's tokenizer: pairs of characters, and bytes for those that it lacks; returns their number."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    is_gemma = config["tokenizer_class"] == "GemmaTokenizer"
    letters = [*letters_of_scripts(), *"ABCDEFGHIJKLMNOPQRSTUVWXYZ.!'-1▁"]
    merges = [("d", "o"), ("▁", "s"), ("t", "h"), ("▁", "th"), ("д", "а")]
    words = [*special, *(f"<0x{n:02X}>" for n in range(256)), *letters, *("".join(pair) for pair in merges)]
    vocabulary = {word: n for n, word in enumerate(words)}
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    space = normalizers.Replace(" ", "▁")
    backend.normalizer = space if is_gemma else normalizers.Sequence([normalizers.Prepend("▁"), space])
    if is_gemma:
        backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken(name, normalized=False) for name in special])
    ends = [(name, vocabulary[name]) for name in special if name in single]
    backend.post_processor = processors.TemplateProcessing(single=single, special_tokens=ends)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 64} | config))
    return len(words)


GEMMA = {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": True, "padding_side": "left"}
GEMMA |= {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
LLAMA = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": True, "legacy": True}
LLAMA |= {"pad_token": "</s>", "eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"}


def write_byte_level(folder: Path) -> int:
    """RoBERTa's tokenizer, as `tokenizer.json`, `vocab.json` and `merges.txt`; returns the number of tokens."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {word: n for n, word in enumerate([*XLMR, *letters, *("".join(pair) for pair in MERGES)])}
    backend = Tokenizer(models.BPE(vocabulary, MERGES))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.add_special_tokens([AddedToken(name, lstrip=name == "<mask>", normalized=False) for name in XLMR])
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    backend.save(str(folder / "tokenizer.json"))
    backend.model.save(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 64}))
    return len(vocabulary)


XLMR = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
CAMEMBERT = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>", "<mask>"]
ALBERT = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]


class Layout(NamedTuple):
    """What a repository has in addition to its encoder and its tokenizer."""

    model_type: str
    tokenizer: str  # word_piece, or the class of a SentencePiece tokenizer
    fields: Mapping[str, object] = MappingProxyType({})  # of config.json
    architecture: str = ""  # the encoder alone if empty
    pooling: str = ""  # a switch of the pooling module; empty: no modules
    dense: int = 0  # the width of a dense module with tanh, 0 without one
    normalize: bool = False
    length: int = 64  # in sentence_bert_config.json
    prompts: Mapping[str, str] = MappingProxyType({})
    bin: bool = False  # weights in pytorch_model.bin
    linear: tuple[int, ...] = ()  # the widths of dense modules without activation and bias
    config: Mapping[str, object] = MappingProxyType({})  # another config.json for the same encoder, apart from words


MODULE = "sentence_transformers.models"


def write_layout(folder: Path, layout: Layout) -> Path:
    """A tiny model with the files and names of a repository."""
    folder.mkdir(parents=True)
    words = write_tokenizer(folder, layout.tokenizer)
    names = NAMES[layout.model_type]
    architecture = layout.architecture or names.architecture
    fields = {"vocab_size": words, "architectures": [architecture], "initializer_range": 0.02} | dict(layout.fields)
    tokenizer = {path.name: path.read_bytes() for path in folder.glob("*token*.json")}
    write_model(folder, layout.model_type, **fields)
    for name, content in tokenizer.items():
        (folder / name).write_bytes(content)
    if layout.config:
        (folder / "config.json").write_text(json.dumps(dict(layout.config) | {"vocab_size": words}))
    _rename_weights(folder, layout)
    if layout.pooling:
        _write_modules(folder, layout)
    return folder


def write_tokenizer(folder: Path, kind: str) -> int:
    """A tokenizer by the name of its class; word_piece is BERT's, and byte_level RoBERTa's."""
    if kind in ("byte_level", "modernbert"):
        return write_byte_level(folder) if kind == "byte_level" else write_modernbert(folder)
    if kind == "qwen":
        return write_qwen(folder)
    if kind == "gemma":
        special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
        return write_sentence_piece_bytes(folder, special, GEMMA, "<bos> $A <eos>")
    if kind == "llama":
        return write_sentence_piece_bytes(folder, ["<unk>", "<s>", "</s>"], LLAMA, "<s> $A </s>")
    special = {"CamembertTokenizer": CAMEMBERT, "AlbertTokenizer": ALBERT}.get(kind, XLMR)
    return write_word_piece(folder) if kind == "word_piece" else write_unigram(folder, special, kind)


def _rename_weights(folder: Path, layout: Layout) -> None:
    names, path = NAMES[layout.model_type], folder / "model.safetensors"
    tensors = load_file(path)
    if not names.has_pooler or "MaskedLM" in layout.architecture:
        tensors = {name: value for name, value in tensors.items() if not name.startswith(names.pooler)}
    if layout.architecture:  # one with a head of its own, and so with a prefix
        tensors = {names.prefix + name: value for name, value in tensors.items()}
        tensors |= HEADS.get(layout.architecture, dict)()
    if "MaskedLM" in layout.architecture:
        tensors |= _language_model(layout, tensors)
    tensors["embeddings.position_ids"] = np.arange(64)[None]  # as older versions of transformers wrote
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path, metadata={"format": "pt"})
    if layout.bin:
        (folder / "pytorch_model.bin").write_bytes(as_pytorch(load_file(path)))
        path.unlink()


def as_pytorch(tensors: Mapping[str, np.ndarray]) -> bytes:
    """A file as torch.save writes it."""
    kinds, content = {"float32": "FloatStorage", "int64": "LongStorage"}, {}
    for key, (name, value) in enumerate(tensors.items()):
        strides = tuple(step // value.itemsize for step in value.strides)
        kept = storage(kinds[value.dtype.name], str(key), value.size)
        content[name] = tensor(kept, 0, value.shape, strides, False, Call("collections", "OrderedDict", ()))
    return archive(content, {str(key): value.tobytes() for key, value in enumerate(tensors.values())})


def _discriminator() -> dict[str, np.ndarray]:
    prefix = "discriminator_predictions"
    shapes = {"dense.weight": (32, 32), "dense.bias": (32,), "dense_prediction.weight": (1, 32)}
    return {f"{prefix}.{name}": np.ones(shape, np.float32) for name, shape in shapes.items()}


HEADS = {"ElectraForPreTraining": _discriminator}  # heads of other kinds


def _language_model(layout: Layout, tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    names, generator = NAMES[layout.model_type], np.random.default_rng(1)
    words = next(value for name, value in tensors.items() if name.endswith(names.words))
    hidden, size = CONFIGS[layout.model_type].get("hidden_size", 32), words.shape[1]
    shapes = {"dense.kernel": (size, hidden), "bias": (len(words),)}
    absent = ("dense.bias", "norm.bias") if layout.model_type == "modernbert" else ()
    return {
        name: generator.normal(size=shapes.get(own, (size,))).astype(np.float32)
        for own, name in names.language_model.items()
        if own not in absent
    }


def _write_modules(folder: Path, layout: Layout) -> None:
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
    switches = {f"pooling_mode_{mode}": mode == layout.pooling for mode in modes}
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32} | switches))
    if layout.dense:
        modules.append(("2_Dense", "Dense"))
        (folder / "2_Dense").mkdir()
        fields = {"in_features": 32, "out_features": layout.dense, "bias": True}
        fields |= {"activation_function": "torch.nn.modules.activation.Tanh"}
        (folder / "2_Dense" / "config.json").write_text(json.dumps(fields))
        generator = np.random.default_rng(2)
        shapes = {"linear.weight": (layout.dense, 32), "linear.bias": (layout.dense,)}
        weights = {name: generator.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
        save_file(weights, folder / "2_Dense" / "model.safetensors")
    for number, (made, read) in enumerate(zip(layout.linear, (32, *layout.linear), strict=False), 2):
        place = folder / f"{number}_Dense"
        modules.append((place.name, "Dense"))
        place.mkdir()
        fields = {"in_features": read, "out_features": made, "bias": False}
        fields |= {"activation_function": "torch.nn.modules.linear.Identity"}
        (place / "config.json").write_text(json.dumps(fields))
        weights = {"linear.weight": np.random.default_rng(number).normal(0, 0.2, (made, read)).astype(np.float32)}
        save_file(weights, place / "model.safetensors")
    if layout.normalize:
        modules.append((f"{len(modules)}_Normalize", "Normalize"))
        (folder / modules[-1][0]).mkdir()
    listing = [
        {"idx": index, "name": str(index), "path": path, "type": f"{MODULE}.{kind}"}
        for index, (path, kind) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listing))
    fields = {"max_seq_length": layout.length, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(fields))
    settings = {"__version__": {"sentence_transformers": "2.2.2"}, "prompts": dict(layout.prompts)}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))


XLMR_CLASS = "XLMRobertaTokenizer"
# ModernBERT's special tokens come last.
MODERN = {"pad_token_id": 264, "bos_token_id": 262, "cls_token_id": 262, "eos_token_id": 263, "sep_token_id": 263}
MODERN |= {"layer_norm_eps": 1e-5, "position_embedding_type": "absolute", "global_attn_every_n_layers": 3}
# Nomic's config has the fields of their own code, and those of transformers.
NOMIC = CONFIGS["nomic_bert"] | {
    **{"architectures": ["NomicBertModel"], "auto_map": {"AutoModel": "nomic-ai/x--modeling.NomicBertModel"}},
    **{"n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 48, "n_positions": 64, "max_position_embeddings": 16},
    **{"max_trained_positions": 16, "rotary_emb_base": 100, "rotary_scaling_factor": None, "head_dim": 8},
    **{"rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None},
    **{"activation_function": "swiglu", "layer_norm_epsilon": 1e-12, "qkv_proj_bias": False, "mlp_fc1_bias": False},
    **{"mlp_fc2_bias": False, "prenorm": False, "parallel_block": False, "use_rms_norm": False, "causal": False},
}
ERNIE_2 = {"use_task_id": False, "type_vocab_size": 4}  # those of later versions have a table of tasks
# What Qwen3-Embedding's, EmbeddingGemma's and E5-Mistral's files say for their tasks; Gemma has more of them.
QWEN_QUERY = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
GEMMA_PROMPTS = {"query": "task: search result | query: ", "document": "title: none | text: "}
GEMMA_PROMPTS |= {"STS": "task: sentence similarity | query: "}
E5_QUERY = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "
LAYOUTS = {
    "intfloat/multilingual-e5-small": Layout("bert", XLMR_CLASS, pooling="mean_tokens", normalize=True),
    "intfloat/multilingual-e5-base": Layout("xlm-roberta", XLMR_CLASS, pooling="mean_tokens", normalize=True),
    "BAAI/bge-base-en-v1.5": Layout("bert", "word_piece", pooling="cls_token", normalize=True),
    "BAAI/bge-m3": Layout(
        *("xlm-roberta", XLMR_CLASS, {"max_position_embeddings": 130}),
        pooling="cls_token",
        normalize=True,
        length=128,
        bin=True,
    ),
    "thenlper/gte-base": Layout("bert", "word_piece", pooling="mean_tokens", normalize=True),
    "Snowflake/snowflake-arctic-embed-l-v2.0": Layout(
        "xlm-roberta", XLMR_CLASS, pooling="cls_token", normalize=True, prompts={"query": "query: "}
    ),
    "mixedbread-ai/mxbai-embed-large-v1": Layout(
        *("bert", "word_piece"),
        pooling="cls_token",
        prompts={"query": "Represent this sentence for searching relevant passages: ", "passage": ""},
    ),
    "sentence-transformers/LaBSE": Layout("bert", "word_piece", pooling="cls_token", dense=32, normalize=True),
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2": Layout(
        "bert", "PreTrainedTokenizerFast", pooling="mean_tokens", length=32
    ),
    "sentence-transformers/paraphrase-multilingual-mpnet-base-v2": Layout(
        "xlm-roberta", XLMR_CLASS, pooling="mean_tokens", length=32
    ),
    "sentence-transformers/distiluse-base-multilingual-cased-v2": Layout(
        "distilbert", "word_piece", pooling="mean_tokens", dense=16
    ),
    "sentence-transformers/all-distilroberta-v1": Layout(
        "roberta", "byte_level", pooling="mean_tokens", normalize=True
    ),
    "sentence-transformers/paraphrase-albert-small-v2": Layout(
        "albert", "AlbertTokenizer", pooling="mean_tokens", length=50
    ),
    "dangvantuan/sentence-camembert-base": Layout("camembert", "CamembertTokenizer", pooling="mean_tokens"),
    "distilbert/distilroberta-base": Layout("roberta", "byte_level", architecture="RobertaForMaskedLM"),
    "FacebookAI/xlm-roberta-base": Layout("xlm-roberta", XLMR_CLASS, architecture="XLMRobertaForMaskedLM"),
    "almanach/camembert-base": Layout("camembert", "CamembertTokenizer", architecture="CamembertForMaskedLM"),
    "albert/albert-base-v2": Layout("albert", "AlbertTokenizer", architecture="AlbertForMaskedLM"),
    "google/electra-small-discriminator": Layout(
        "electra", "word_piece", architecture="ElectraForPreTraining", bin=True
    ),
    "google/electra-small-generator": Layout("electra", "word_piece", architecture="ElectraForMaskedLM"),
    "nghuyong/ernie-2.0-base-en": Layout("ernie", "word_piece", ERNIE_2, architecture="ErnieForMaskedLM", bin=True),
    "nghuyong/ernie-3.0-base-zh": Layout(
        "ernie", "word_piece", {"type_vocab_size": 4}, architecture="ErnieForMaskedLM", bin=True
    ),
    "answerdotai/ModernBERT-base": Layout("modernbert", "modernbert", MODERN, architecture="ModernBertForMaskedLM"),
    "Alibaba-NLP/gte-modernbert-base": Layout("modernbert", "modernbert", MODERN, pooling="cls_token"),
    "nomic-ai/nomic-embed-text-v1.5": Layout("nomic_bert", "word_piece", pooling="mean_tokens", config=NOMIC),
    "Qwen/Qwen3-Embedding-0.6B": Layout(
        *("qwen3", "qwen", {"bos_token_id": 261, "eos_token_id": 261, "pad_token_id": None}),
        pooling="lasttoken",
        normalize=True,
        prompts={"query": QWEN_QUERY, "document": ""},
    ),
    "google/embeddinggemma-300m": Layout(
        *("gemma3_text", "gemma"), pooling="mean_tokens", linear=(48, 32), normalize=True, prompts=GEMMA_PROMPTS
    ),
    "intfloat/e5-mistral-7b-instruct": Layout(
        *("mistral", "llama", {"pad_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}),
        pooling="lasttoken",
        normalize=True,
        prompts={"web_search_query": E5_QUERY},
    ),
}
