"""Damaged JSON: every JSON file that a command reads, damaged as a whole and field by field."""

import itertools
from collections.abc import Iterator

from hostile.case import EITHER, REFUSED, Case, Reader
from hostile.damages import change
from hostile.json_damages import HARMLESS, VALUES, WHOLE, drop_field, set_field
from hostile.readers import ENCODE_RUN, EXPORT, INDEX, KEPT, RESUME, RUNS, STATE, readers_of_model

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
FIELDS: dict[str, str] = {  # of files that other programs write, too
    "model/config.json": "model_type architectures vocab_size hidden_size num_hidden_layers num_attention_heads "
    "intermediate_size hidden_act max_position_embeddings type_vocab_size layer_norm_eps pad_token_id",
    "model/tokenizer_config.json": "tokenizer_class model_max_length pad_token unk_token cls_token",
    "sharded/model.safetensors.index.json": "weight_map metadata weight_map/embeddings.LayerNorm.weight",
    "foreign/modules.json": "0 1/type 1/path 1/idx 2/type 2/path",
    "foreign/1_Pooling/config.json": "word_embedding_dimension pooling_mode_cls_token pooling_mode_mean_tokens "
    "include_prompt pooling_mode",
    "foreign/2_Dense/config.json": "in_features out_features bias activation_function",
    "foreign/sentence_bert_config.json": "max_seq_length do_lower_case",
    "foreign/config_sentence_transformers.json": "prompts default_prompt_name similarity_fn_name truncate_dim "
    "__version__ model_type",
}


def cases() -> Iterator[Case]:
    """Every damage for the first two files, and a third of them for the others, which are read by the same code."""
    for place, (file, readers, needed) in enumerate(FILES):
        reader, end = itertools.cycle(readers), REFUSED if needed else EITHER
        names = "" if not needed else "tokenizer" if "tokenizer.json" in file else file.rpartition("/")[2]
        for number, (name, changed) in enumerate(WHOLE.items()):
            is_metrics = file.endswith(".jsonl") and name in ("empty", "blank", "twice")
            if not (is_metrics or (place > 1 and (number + place) % 3)):
                yield next(reader).case("JSON files", f"{file} is {name}", change(file, changed), end, names)
        for name, changed in HARMLESS.items():
            if not file.endswith(".jsonl"):
                yield next(reader).case("JSON files", f"{file} has {name}", change(file, changed), EITHER)
    for file, names in FIELDS.items():
        readers = next(readers for other, readers, _ in FILES if other == file)
        reader, step = itertools.cycle(readers[:3]), 1 if file == "model/config.json" else 5
        # Of other files a fifth of the values: their number is no multiple of five, so each field gets others.
        for field, (name, value) in list(itertools.product(names.split(), VALUES.items()))[::step]:
            damage = set_field(file, field, value)
            yield next(reader).case("JSON fields", f"{file} {field} is {name}", damage, EITHER)
        for field in names.split():
            yield readers[0].case("JSON fields", f"{file} has no {field}", drop_field(file, field), EITHER)
