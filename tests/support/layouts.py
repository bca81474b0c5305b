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
from support.later import later
from support.pickles import Call, archive, storage, tensor

tokenizers, models, decoders = later("tokenizers"), later("tokenizers.models"), later("tokenizers.decoders")
normalizers, pre_tokenizers = later("tokenizers.normalizers"), later("tokenizers.pre_tokenizers")
processors = later("tokenizers.processors")

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
# By script, the first and the last letter of a range.
SCRIPTS = {"Latin": "az", "Latin with accents": "àÿ", "Cyrillic": "ая", "Greek": "αω", "Arabic": "بي", "Hebrew": "את"}
SCRIPTS |= {"Devanagari": "कह", "Thai": "กฮ", "Han": "一丠", "Kana": "あん", "Hangul": "가각"}
APART = ("Thai", "Han", "Kana")  # written without spaces between words


MARKS = ["", ".", "!", " …", "。", " ﬁ Ａ①", "\u3000x", "  é", "🎸", "<mask>", "[MASK]", "``it''", " don't", "\n"]


def sentences_of_scripts(count: int = 2000, seed: int = 0) -> list[str]:
    """Made-up sentences of ten scripts and more, in turn, with punctuation, capitals and other characters."""
    generator, made = np.random.default_rng(seed), []
    for number in range(count):
        name = list(SCRIPTS)[number % len(SCRIPTS)]
        first, last = map(ord, SCRIPTS[name])
        letters = [chr(code) for code in range(first, last + 1)]
        words = ["".join(generator.choice(letters, generator.integers(1, 9))) for _ in range(generator.integers(1, 12))]
        text = ("" if name in APART else " ").join(words) + str(generator.choice(MARKS))
        made.append(text.title() if number % 5 == 0 else text)
    return made


# All letters of the scripts but the last one of each, which a vocabulary made of these does not know.
LETTERS = [chr(code) for first, last in SCRIPTS.values() for code in range(ord(first), ord(last))]
LETTERS += "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def save_tokenizer(folder: Path, backend, special=(), single="$A", mask="", processor=None, **config: object) -> int:
    """Writes it with its special tokens and those around a text; returns the number of tokens."""
    added = [tokenizers.AddedToken(name, lstrip=name == mask, normalized=False) for name in special]
    backend.add_special_tokens(added)
    ends = [(name, backend.token_to_id(name)) for name in single.split() if name != "$A"]
    backend.post_processor = processor or processors.TemplateProcessing(single=single, special_tokens=ends)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 64} | config))
    return backend.get_vocab_size()


def write_unigram(folder: Path, special: list[str], tokenizer_class: str | None, **settings: object) -> int:
    """SentencePiece's model as `tokenizer.json` has it, with the special tokens first."""
    letters = [*LETTERS, *".!'\"-1"]
    pieces = ["▁", *(f"▁{letter}" for letter in letters[::2]), *letters, "▁the", "▁cat", "do", "▁da", "что", "ing"]
    vocabulary = [(name, 0.0) for name in special] + [(piece, -1.0 - n / 50) for n, piece in enumerate(pieces)]
    backend = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=special.index("<unk>"), byte_fallback=False))
    backend.normalizer = normalizers.Precompiled(CHARSMAP)
    if tokenizer_class == "AlbertTokenizer":
        quotes = [normalizers.Replace(pair, '"') for pair in ("``", "''")]
        lower = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
        backend.normalizer = normalizers.Sequence([*quotes, *lower, normalizers.Precompiled(CHARSMAP)])
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    backend.decoder = decoders.Metaspace()
    cls, sep, mask = ("[CLS]", "[SEP]", "[MASK]") if "[CLS]" in special else ("<s>", "</s>", "<mask>")
    config = {"tokenizer_class": tokenizer_class, "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": mask}
    config |= {"cls_token": cls, "sep_token": sep} | settings
    added = [name for name in special if "NOTUSED" not in name]
    ends = [(name, backend.token_to_id(name)) for name in (cls, sep)]
    pair = f"{cls} $A {sep} {sep} $B {sep}" if cls == "<s>" else f"{cls} $A {sep} $B:1 {sep}:1"
    around = processors.TemplateProcessing(single=f"{cls} $A {sep}", pair=pair, special_tokens=ends)
    return save_tokenizer(folder, backend, added, "", mask, around, **config)


BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_word_piece(folder: Path, lowercase: bool = True, letters=(*LETTERS, *".!'`-1"), **settings: object) -> int:
    """BERT's tokenizer, usually of these scripts, as `tokenizer.json` and `vocab.txt`."""
    words = [*BERT, *letters, *(f"##{letter}" for letter in letters), "the", "##ing"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    backend = tokenizers.Tokenizer(models.WordPiece({word: n for n, word in enumerate(words)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    ends = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return save_tokenizer(folder, backend, BERT, "$A", "", ends, **settings)


MERGES = [("d", "o"), ("Ġ", "s"), ("t", "h"), ("Ġ", "th"), ("Ð", "°")]


def of_bytes(special=()):
    """A tokenizer of bytes, after the special tokens that its vocabulary has itself."""
    words = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES)]
    backend = tokenizers.Tokenizer(models.BPE({word: n for n, word in enumerate(words)}, MERGES))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    if not special:  # those of today
        backend.normalizer = normalizers.NFC()
    return backend


def write_modernbert(folder: Path) -> int:
    """ModernBERT's tokenizer, as `tokenizer.json`: bytes, then BERT's special tokens."""
    backend, special = of_bytes(), ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    config = {f"{name.strip('[]').lower()}_token": name for name in special}
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": True}
    config |= {"model_input_names": ["input_ids", "attention_mask"]}
    return save_tokenizer(folder, backend, special, "[CLS] $A [SEP]", "[MASK]", **config)


QWEN_SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
QWEN_SPLIT += r"|\s*[\r\n]+|\s+(?!\S)|\s+"


def write_qwen(folder: Path) -> int:
    """Qwen3-Embedding's tokenizer, as `tokenizer.json`: bytes, the end token after a text."""
    backend, special = of_bytes(), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    split = pre_tokenizers.Split(tokenizers.Regex(QWEN_SPLIT), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    end = (special[0], 256 + len(MERGES))
    ends = processors.TemplateProcessing(single=f"$A {special[0]}", special_tokens=[end])
    ends = processors.Sequence([processors.ByteLevel(trim_offsets=False), ends])
    config = {"tokenizer_class": "Qwen2Tokenizer", "pad_token": special[0], "eos_token": special[2], "unk_token": None}
    config |= {"padding_side": "left", "add_prefix_space": False, "bos_token": None}
    return save_tokenizer(folder, backend, special, processor=ends, **config)


def write_byte_level(folder: Path, **settings: object) -> int:
    """RoBERTa's tokenizer, as `tokenizer.json`, `vocab.json` and `merges.txt`."""
    backend = of_bytes(XLMR)
    backend.model.save(str(folder))
    ends = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), True, False)
    return save_tokenizer(folder, backend, XLMR, mask="<mask>", processor=ends, **settings)


def write_sentence_piece_bytes(folder: Path, special: list[str], config: dict[str, object], single: str) -> int:
    """Gemma's or Llama's tokenizer: pairs of characters, and bytes for those that it lacks."""
    is_gemma = config["tokenizer_class"] == "GemmaTokenizer"
    letters, merges = [*LETTERS, *".!'-1▁"], [("d", "o"), ("▁", "s"), ("t", "h"), ("▁", "th"), ("д", "а")]
    words = [*special, *(f"<0x{n:02X}>" for n in range(256)), *letters, *("".join(pair) for pair in merges)]
    vocabulary = {word: n for n, word in enumerate(words)}
    bpe = models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    backend, space = tokenizers.Tokenizer(bpe), normalizers.Replace(" ", "▁")
    backend.normalizer = space if is_gemma else normalizers.Sequence([normalizers.Prepend("▁"), space])
    if is_gemma:
        backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return save_tokenizer(folder, backend, special, single, **config)


GEMMA = {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": True, "padding_side": "left"}
GEMMA |= {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
LLAMA = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": True, "legacy": True}
LLAMA |= {"pad_token": "</s>", "eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"}
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
    """A tokenizer by the name of its class or of its writer; returns the number of tokens."""
    own = {"word_piece": write_word_piece, "byte_level": write_byte_level, "modernbert": write_modernbert}
    own |= {"qwen": write_qwen}
    if kind in own:
        return own[kind](folder)
    if kind == "gemma":
        special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
        return write_sentence_piece_bytes(folder, special, GEMMA, "<bos> $A <eos>")
    if kind == "llama":
        return write_sentence_piece_bytes(folder, ["<unk>", "<s>", "</s>"], LLAMA, "<s> $A </s>")
    return write_unigram(folder, {"CamembertTokenizer": CAMEMBERT, "AlbertTokenizer": ALBERT}.get(kind, XLMR), kind)


def _rename_weights(folder: Path, layout: Layout) -> None:
    names, path = NAMES[layout.model_type], folder / "model.safetensors"
    tensors = load_file(path)
    if not names.has_pooler or "MaskedLM" in layout.architecture:
        tensors = {name: value for name, value in tensors.items() if not name.startswith(names.pooler)}
    if layout.architecture:  # one with a head of its own, and so with a prefix
        tensors = {names.prefix + name: value for name, value in tensors.items()}
        if layout.architecture == "ElectraForPreTraining":  # a head of another kind
            shapes = {"dense.weight": (32, 32), "dense.bias": (32,), "dense_prediction.weight": (1, 32)}
            tensors |= {f"discriminator_predictions.{name}": np.ones(x, np.float32) for name, x in shapes.items()}
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
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
    switches = {f"pooling_mode_{mode}": mode == layout.pooling for mode in modes}
    modules: list[tuple[str, str]] = []

    def add(kind: str, fields: Mapping[str, object] | None = None) -> Path:
        modules.append((f"{len(modules)}_{kind}" if modules else "", kind))
        (folder / modules[-1][0]).mkdir(exist_ok=True)
        if fields is not None:
            (folder / modules[-1][0] / "config.json").write_text(json.dumps(fields))
        return folder / modules[-1][0] / "model.safetensors"

    def add_dense(made: int, read: int, bias: bool, activation: str) -> None:
        fields = {"in_features": read, "out_features": made, "bias": bias}
        path = add("Dense", fields | {"activation_function": f"torch.nn.modules.{activation}"})
        generator = np.random.default_rng(len(modules) - 1)
        shapes = {"linear.weight": (made, read)} | ({"linear.bias": (made,)} if bias else {})
        save_file({name: generator.normal(0, 0.2, x).astype(np.float32) for name, x in shapes.items()}, path)

    add("Transformer")
    add("Pooling", {"word_embedding_dimension": 32} | switches)
    if layout.dense:
        add_dense(layout.dense, 32, True, "activation.Tanh")
    for made, read in zip(layout.linear, (32, *layout.linear), strict=False):
        add_dense(made, read, False, "linear.Identity")
    if layout.normalize:
        add("Normalize")
    own = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules]
    listing = [{"idx": index, "name": str(index)} | fields for index, fields in enumerate(own)]
    (folder / "modules.json").write_text(json.dumps(listing))
    fields = {"max_seq_length": layout.length, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(fields))
    settings = {"__version__": {"sentence_transformers": "2.2.2"}, "prompts": dict(layout.prompts)}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))


XLM = "XLMRobertaTokenizer"
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
ASKED = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
QWEN_PROMPTS, E5_PROMPTS = {"query": ASKED, "document": ""}, {"web_search_query": f"{ASKED} "}
GEMMA_PROMPTS = {"query": "task: search result | query: ", "document": "title: none | text: "}
GEMMA_PROMPTS |= {"STS": "task: sentence similarity | query: "}
MEAN, CLS, LAST = ({"pooling": mode} for mode in ("mean_tokens", "cls_token", "lasttoken"))
UNIT, ST = {"normalize": True}, "sentence-transformers"
QWEN_IDS, LLAMA_IDS = {"bos_token_id": 261, "eos_token_id": 261, "pad_token_id": None}, {"pad_token_id": 2}
LLAMA_IDS |= {"bos_token_id": 1, "eos_token_id": 2}
MXBAI = {"query": "Represent this sentence for searching relevant passages: ", "passage": ""}
LAYOUTS = {
    "intfloat/multilingual-e5-small": Layout("bert", XLM, **MEAN, **UNIT),
    "intfloat/multilingual-e5-base": Layout("xlm-roberta", XLM, **MEAN, **UNIT),
    "BAAI/bge-base-en-v1.5": Layout("bert", "word_piece", **CLS, **UNIT),
    "BAAI/bge-m3": Layout("xlm-roberta", XLM, {"max_position_embeddings": 130}, length=128, bin=True, **CLS, **UNIT),
    "thenlper/gte-base": Layout("bert", "word_piece", **MEAN, **UNIT),
    "Snowflake/snowflake-arctic-embed-l-v2.0": Layout("xlm-roberta", XLM, prompts={"query": "query: "}, **CLS, **UNIT),
    "mixedbread-ai/mxbai-embed-large-v1": Layout("bert", "word_piece", prompts=MXBAI, **CLS),
    f"{ST}/LaBSE": Layout("bert", "word_piece", dense=32, **CLS, **UNIT),
    f"{ST}/paraphrase-multilingual-MiniLM-L12-v2": Layout("bert", "PreTrainedTokenizerFast", length=32, **MEAN),
    f"{ST}/paraphrase-multilingual-mpnet-base-v2": Layout("xlm-roberta", XLM, length=32, **MEAN),
    f"{ST}/distiluse-base-multilingual-cased-v2": Layout("distilbert", "word_piece", dense=16, **MEAN),
    f"{ST}/all-distilroberta-v1": Layout("roberta", "byte_level", **MEAN, **UNIT),
    f"{ST}/paraphrase-albert-small-v2": Layout("albert", "AlbertTokenizer", length=50, **MEAN),
    "dangvantuan/sentence-camembert-base": Layout("camembert", "CamembertTokenizer", **MEAN),
    "distilbert/distilroberta-base": Layout("roberta", "byte_level", architecture="RobertaForMaskedLM"),
    "FacebookAI/xlm-roberta-base": Layout("xlm-roberta", XLM, architecture="XLMRobertaForMaskedLM"),
    "almanach/camembert-base": Layout("camembert", "CamembertTokenizer", architecture="CamembertForMaskedLM"),
    "albert/albert-base-v2": Layout("albert", "AlbertTokenizer", architecture="AlbertForMaskedLM"),
    "google/electra-small-discriminator": Layout("electra", "word_piece", {}, "ElectraForPreTraining", bin=True),
    "google/electra-small-generator": Layout("electra", "word_piece", architecture="ElectraForMaskedLM"),
    "nghuyong/ernie-2.0-base-en": Layout("ernie", "word_piece", ERNIE_2, "ErnieForMaskedLM", bin=True),
    "nghuyong/ernie-3.0-base-zh": Layout("ernie", "word_piece", {"type_vocab_size": 4}, "ErnieForMaskedLM", bin=True),
    "answerdotai/ModernBERT-base": Layout("modernbert", "modernbert", MODERN, architecture="ModernBertForMaskedLM"),
    "Alibaba-NLP/gte-modernbert-base": Layout("modernbert", "modernbert", MODERN, **CLS),
    "nomic-ai/nomic-embed-text-v1.5": Layout("nomic_bert", "word_piece", config=NOMIC, **MEAN),
    "Qwen/Qwen3-Embedding-0.6B": Layout("qwen3", "qwen", QWEN_IDS, prompts=QWEN_PROMPTS, **LAST, **UNIT),
    "google/embeddinggemma-300m": Layout(
        "gemma3_text", "gemma", linear=(48, 32), prompts=GEMMA_PROMPTS, **MEAN, **UNIT
    ),
    "intfloat/e5-mistral-7b-instruct": Layout("mistral", "llama", LLAMA_IDS, prompts=E5_PROMPTS, **LAST, **UNIT),
}
