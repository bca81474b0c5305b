"""Damaged JSON: every JSON file that a command reads, damaged as a whole and field by field."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from hostile.case import EITHER, MODEL, PAIRS, REFUSED, TEXT, Case
from hostile.json_damages import HARMLESS, VALUES, WHOLE, change_bytes, drop_field, set_field
from hostile.seeds import RUN, train_arguments


class Reader(NamedTuple):
    """A command that reads a model or another folder, and what it writes."""

    command: str
    arguments: list[str]
    inputs: list[str]
    output: str
    leaves: tuple[str, ...] = ()


def readers_of_model(name: str = MODEL) -> list[Reader]:
    """The commands that read a model's folder, the quickest first."""
    return [
        Reader("encode", [f"--model={name}", f"--data={TEXT}", "--output=out.npy"], [name, TEXT], "out.npy"),
        Reader("evaluate", [f"--model={name}", f"--data={PAIRS}", "--output=out.json"], [name, PAIRS], "out.json"),
        Reader(
            "search",
            [f"--model={name}", f"--data={TEXT}", "--query=a cat", "--output=out.json"],
            [name, TEXT],
            "out.json",
        ),
        Reader("demo", [f"--model={name}", f"--data={TEXT}", "--port=0"], [name, TEXT], ""),
        Reader("geometry", [f"--models={name}", f"--data={PAIRS}", "--output=out"], [name, PAIRS], "out"),
        Reader("analyze", [f"--model={name}", f"--data={TEXT}", "--output=out"], [name, TEXT], "out"),
        Reader("train", train_arguments("run", model__init_from=name), [name, TEXT, PAIRS], "run"),
    ]


INDEX = Reader(
    "search", ["--model=model", "--index=index", "--query=a cat", "--output=out.json"], ["model", "index"], "out.json"
)
STATE = Reader(
    "encode",
    ["--model=model", "--data=text.txt", "--output=state/out.npy", "--save-every=4"],
    ["model", "text.txt", "state"],
    "state/out.npy",
    ("state/*",),
)
EXPORT = Reader("export", ["--workdir=workdir", "--output=out"], ["workdir"], "out")
RESUME = Reader(
    "train",
    RUN,
    ["model", "train.csv", "pairs.tsv", "workdir"],
    "workdir",
    ("workdir/*",),
)
RUNS = Reader("analyze", ["--runs", "workdir", "--output=out"], ["workdir"], "out")
KEPT = Reader("geometry", ["--runs", "workdir", f"--data={PAIRS}", "--output=out"], ["workdir", PAIRS], "out")
ENCODE_RUN = readers_of_model("workdir")[0]

# The file, its readers in turn, and whether a file that is no longer what it was must be refused: a file whose
# contents a command may do without need not be.
FILES: list[tuple[str, list[Reader], bool]] = [
    ("model/config.json", readers_of_model(), True),
    ("model/tokenizer.json", readers_of_model()[:4], True),
    ("model/tokenizer_config.json", readers_of_model()[:4], False),
    ("sharded/model.safetensors.index.json", readers_of_model("sharded")[:4], True),
    ("foreign/config.json", readers_of_model("foreign")[:3], True),
    ("foreign/modules.json", readers_of_model("foreign")[:4], True),
    ("foreign/1_Pooling/config.json", readers_of_model("foreign")[:3], True),
    ("foreign/2_Dense/config.json", readers_of_model("foreign")[:3], True),
    ("foreign/sentence_bert_config.json", readers_of_model("foreign")[:3], False),
    ("foreign/config_sentence_transformers.json", readers_of_model("foreign")[:3], False),
    ("exported/simcse_jax.json", readers_of_model("exported")[:3], True),
    ("workdir/run.json", [EXPORT, ENCODE_RUN, RUNS, KEPT, RESUME], True),
    ("workdir/result.json", [EXPORT], False),
    ("workdir/metrics.jsonl", [RUNS, EXPORT, RESUME], False),
    ("workdir/model/config.json", [EXPORT, ENCODE_RUN], True),
    ("workdir/model/tokenizer.json", [EXPORT, ENCODE_RUN], True),
    ("index/index.json", [INDEX], True),
    ("state/.out.npy.state.json", [STATE], False),
]
# Files that are read by the same code as another one, or late.
HALF = [
    *("foreign/config.json", "foreign/1_Pooling/config.json", "foreign/2_Dense/config.json"),
    *("foreign/sentence_bert_config.json", "foreign/config_sentence_transformers.json", "exported/simcse_jax.json"),
    *("workdir/result.json", "workdir/metrics.jsonl", "workdir/model/config.json", "workdir/model/tokenizer.json"),
    *("model/tokenizer_config.json", "state/.out.npy.state.json"),
]
# Fields of those files, each with the values that are right types for it and so left out.
FIELDS: dict[str, list[str]] = {
    "model/config.json": [
        *("model_type", "architectures", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
        *("intermediate_size", "hidden_act", "max_position_embeddings", "type_vocab_size", "layer_norm_eps"),
        "pad_token_id",
    ],
    "model/tokenizer_config.json": ["tokenizer_class", "model_max_length", "pad_token", "unk_token", "cls_token"],
    "sharded/model.safetensors.index.json": ["weight_map", "metadata", "weight_map/embeddings.LayerNorm.weight"],
    "foreign/modules.json": ["0", "1/type", "1/path", "1/idx", "2/type", "2/path"],
    "foreign/1_Pooling/config.json": [
        *("word_embedding_dimension", "pooling_mode_cls_token", "pooling_mode_mean_tokens", "include_prompt"),
        "pooling_mode",
    ],
    "foreign/2_Dense/config.json": ["in_features", "out_features", "bias", "activation_function"],
    "foreign/sentence_bert_config.json": ["max_seq_length", "do_lower_case"],
    "foreign/config_sentence_transformers.json": [
        *("prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim", "__version__", "model_type"),
    ],
    "exported/simcse_jax.json": ["pooler", "head", "version"],
    "workdir/run.json": [
        *("config", "config/model", "config/model/pooler", "config/model/mlp", "config/model/init_from"),
        "config/eval/pooler",
        *("config/train/max_steps", "config/analysis/every", "versions", "device", "examples"),
    ],
    "workdir/result.json": ["step", "scores"],
    "index/index.json": [
        *("format", "rows", "model", "model/name", "model/dimension", "model/sha256", "model/head", "embeddings"),
        "sentences",
    ],
    "state/.out.npy.state.json": ["done", "cut", "about", "about/--model", "about/--max-length"],
}


def case(kind: str, reader: Reader, damage: str, make, end: str, names: str = "") -> Case:
    return Case(
        kind, reader.command, damage, reader.arguments, reader.inputs, make, end, names, reader.output, reader.leaves
    )


def cases() -> Iterator[Case]:
    yield from whole_files()
    yield from fields()
    yield from missing_fields()


def whole_files() -> Iterator[Case]:
    """Every damage of a whole file, with the file's readers in turn; for files of `HALF` every other damage."""
    for file, readers, needed in FILES:
        reader = itertools.cycle(readers)
        last = "tokenizer" if "tokenizer.json" in file else file.rpartition("/")[2]
        for number, (name, change) in enumerate(WHOLE.items()):
            if file in HALF and number % 2 == HALF.index(file) % 2:
                continue
            if file.endswith(".jsonl") and name in ("empty", "blank", "twice"):
                continue  # these are metrics
            yield case(
                "JSON files",
                next(reader),
                f"{file} is {name}",
                change_bytes(file, change),
                REFUSED if needed else EITHER,
                last if needed else "",
            )
        for name, change in HARMLESS.items():
            if not file.endswith(".jsonl"):
                yield case("JSON files", next(reader), f"{file} has {name}", change_bytes(file, change), EITHER)


def fields() -> Iterator[Case]:
    """Fields with values of other types and sizes: all of them for the first file, a fifth of them for the others."""
    readers = {file: itertools.cycle(readers[:3]) for file, readers, _ in FILES}
    for file, names in FIELDS.items():
        step = 1 if file == "model/config.json" else 5
        for number, (field, (name, value)) in enumerate(itertools.product(names, VALUES.items())):
            if number % step:  # the number of values is no multiple of five, so the next field gets others
                continue
            damage = set_field(file, field, value)
            yield case("JSON fields", next(readers[file]), f"{file} {field} is {name}", damage, EITHER)


def missing_fields() -> Iterator[Case]:
    for file, names in FIELDS.items():
        reader = next(readers for other, readers, _ in FILES if other == file)[0]
        for field in names:
            yield case("JSON fields", reader, f"{file} has no {field}", drop_field(file, field), EITHER)
