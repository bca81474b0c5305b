"""Damaged weights: safetensors, and pickles of PyTorch's."""

import itertools
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hostile.case import EITHER, REFUSED, REFUSED_OR_SAME, SAME, Case
from hostile.cases_json import readers_of_model
from hostile.damages import PLACES, Make, both, cut, flip, instead, remove, unreadable, write
from hostile.json_damages import change_json
from support.pickles import Call, archive, parts, storage, tensor, whole

TORCH_FILE = "torch/pytorch_model.bin"
NORM = "embeddings.LayerNorm.weight"
WORDS = "embeddings.word_embeddings.weight"
FILE = "model/model.safetensors"
Header = dict[str, Any]


def header(change: Callable[[Header], object]) -> Make:
    """Changes the JSON at the start of a safetensors file; the tensors' bytes stay."""

    def make(folder: Path) -> None:
        data = (folder / FILE).read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        value = json.loads(data[8 : 8 + length])
        changed = change(value)
        text = changed if isinstance(changed, bytes) else json.dumps(value).encode()
        (folder / FILE).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])

    return make


def tensors(change: Callable[[dict[str, np.ndarray]], object]) -> Make:
    """Writes the model's tensors again, after a change."""

    def make(folder: Path) -> None:
        from safetensors.numpy import load_file, save_file

        found = load_file(folder / FILE)
        change(found)
        save_file(found, folder / FILE, metadata={"format": "pt"})

    return make


def put(name: str, value: Callable[[np.ndarray], np.ndarray]) -> Make:
    return tensors(lambda found: found.update({name: np.ascontiguousarray(value(found[name]))}))


def length(value: int) -> Make:
    def make(folder: Path) -> None:
        data = (folder / FILE).read_bytes()
        (folder / FILE).write_bytes(struct.pack("<Q", value) + data[8:])

    return make


def renamed(found: dict[str, np.ndarray], change: Callable[[str], str]) -> None:
    for name in list(found):
        found[change(name)] = found.pop(name)


SAFE: dict[str, tuple[Make, str]] = {
    "empty": (write(FILE, b""), REFUSED),
    "7 bytes": (write(FILE, b"\0" * 7), REFUSED),
    "zeros": (write(FILE, b"\0" * 4096), REFUSED),
    "a pickle": (write(FILE, pickle.dumps({"a": 1})), REFUSED),
    "a pointer of Git LFS": (
        write(FILE, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
        REFUSED,
    ),
    "a page of HTML": (write(FILE, "<!doctype html><title>404</title>"), REFUSED),
    "a header longer than the file": (length(1 << 40), REFUSED),
    "a header of 2^64 - 1 bytes": (length(2**64 - 1), REFUSED),
    "a header of no bytes": (length(0), REFUSED),
    "a header that is a list": (header(lambda value: b"[]"), REFUSED),
    "a header nested deeply": (header(lambda value: b"[" * 50_000), REFUSED),
    "a header of other bytes": (header(lambda value: b"\xff" * 100), REFUSED),
    "an offset after the end": (header(lambda value: value[NORM].update(data_offsets=[10**9, 10**9 + 128])), REFUSED),
    "a negative offset": (header(lambda value: value[NORM].update(data_offsets=[-128, 0])), REFUSED),
    "offsets in reverse": (header(lambda value: value[NORM]["data_offsets"].reverse()), REFUSED),
    "tensors that overlap": (
        header(lambda value: value[NORM].update(data_offsets=value[WORDS]["data_offsets"])),
        REFUSED,
    ),
    "a shape of other size": (header(lambda value: value[NORM].update(shape=[33])), REFUSED),
    "a huge shape": (header(lambda value: value[NORM].update(shape=[2**40, 2**40])), REFUSED),
    "a negative shape": (header(lambda value: value[NORM].update(shape=[-32])), REFUSED),
    "a shape that is a word": (header(lambda value: value[NORM].update(shape="32")), REFUSED),
    "an unknown type": (header(lambda value: value[NORM].update(dtype="F13")), REFUSED),
    "a type that is a number": (header(lambda value: value[NORM].update(dtype=32)), REFUSED),
    "a tensor without offsets": (header(lambda value: value[NORM].pop("data_offsets")), REFUSED),
    "a tensor that is null": (header(lambda value: value.update({NORM: None})), REFUSED),
    "a missing tensor": (tensors(lambda found: found.pop(NORM)), REFUSED),
    "no tensors": (tensors(lambda found: found.clear()), REFUSED),
    "an additional tensor": (tensors(lambda found: found.update(extra=np.ones(3, np.float32))), SAME),
    "the encoder's prefix": (tensors(lambda found: renamed(found, lambda name: f"bert.{name}")), SAME),
    "another prefix": (tensors(lambda found: renamed(found, lambda name: f"module.{name}")), REFUSED_OR_SAME),
    "names in upper case": (tensors(lambda found: renamed(found, str.upper)), REFUSED),
    "float64": (put(NORM, np.float64), SAME),
    "integers": (put(NORM, lambda array: array.astype(np.int64)), EITHER),
    "booleans": (put(NORM, lambda array: array > 0), EITHER),
    "another shape": (put(NORM, lambda array: array[:16]), REFUSED),
    "more dimensions": (put(NORM, lambda array: array[None]), REFUSED),
    "a scalar": (put(NORM, lambda array: array[0]), REFUSED),
    "no elements": (put(NORM, lambda array: array[:0]), REFUSED),
    "transposed": (put(WORDS, np.transpose), REFUSED),
    "NaN everywhere": (put(WORDS, lambda array: array * np.float32("nan")), REFUSED),
    "a NaN": (
        put(
            "encoder.layer.1.output.dense.bias", lambda array: np.where(np.arange(32) == 3, np.nan, array).astype("f4")
        ),
        REFUSED,
    ),
    "infinite": (put(NORM, lambda array: array + np.float32("inf")), REFUSED),
    "numbers that overflow": (
        put("encoder.layer.1.output.LayerNorm.weight", lambda array: array * 0 + np.float32(3e38)),
        REFUSED,
    ),
    **{
        kind: (header(lambda value, kind=kind, shape=shape: value[NORM].update(dtype=kind, shape=shape)), EITHER)
        for kind, shape in (
            ("F8_E4M3", [128]),
            ("F8_E5M2", [128]),
            ("BF16", [64]),
            ("F16", [64]),
            ("I32", [32]),
            ("U8", [128]),
            ("C64", [16]),
        )
    },
}

# A BERT's weights with the config of another encoder, or with sizes that are not theirs.
OTHER_CONFIGS: dict[str, dict[str, Any]] = {
    "narrow embeddings": {"model_type": "electra", "embedding_size": 16},
    "a projection that is not there": {"model_type": "albert", "embedding_size": 32, "num_hidden_groups": 1},
    "a table of tasks that is not there": {"model_type": "ernie", "use_task_id": True, "task_type_vocab_size": 3},
    "more groups than layers": {"model_type": "albert", "embedding_size": 32, "num_hidden_groups": 3},
    "two inner layers of a group": {"model_type": "albert", "num_hidden_groups": 1, "inner_group_num": 2},
    "a size that is a word": {"model_type": "electra", "embedding_size": "small"},
    "a misspelled type": {"model_type": "xlm_roberta"},
    "rotations and no biases": {"model_type": "nomic_bert"},
    "a window of nothing": {"model_type": "modernbert", "local_attention": 0},
    "two windows": {"model_type": "modernbert", "local_attention": 4, "sliding_window": 7},
    "half of each head rotated": {"model_type": "nomic_bert", "partial_rotary_factor": 0.5},
    "a base of rotations below one": {"model_type": "modernbert", "global_rope_theta": 0.0},
    "more layers than memory": {"model_type": "modernbert", "num_hidden_layers": 10**15},
    "bases that no layer has": {"model_type": "modernbert", "rope_parameters": {"rope_type": "yarn", "factor": 4}},
    "layers of an unknown kind": {"model_type": "modernbert", "layer_types": ["local", "global"]},
    "stretched rotations": {"model_type": "nomic_bert", "rope_parameters": {"rope_type": "yarn", "factor": 4}},
    "heads of odd size": {"model_type": "nomic_bert", "num_attention_heads": 32},
    "positions after those of the table": {"model_type": "camembert", "max_position_embeddings": 66, "pad_token_id": 1},
}


def crafted_tensor(
    kind: str = "FloatStorage", key: str = "0", count: int = 64, offset: Any = 0, shape: Any = (32,), stride: Any = (1,)
) -> Call:
    """A tensor of a storage: of PyTorch's class `kind`, in a file of the archive, with a number of elements."""
    return tensor(storage(kind, key, count), offset, shape, stride)


def pickled(content: object, storages: dict[str, bytes] | None = None) -> Make:
    """The model's weights replaced by these."""
    storages = {"0": np.ones(64, "<f4").tobytes()} if storages is None else storages
    return lambda folder: (folder / TORCH_FILE).write_bytes(archive(content, storages))


def crafted(value: object, storages: dict[str, bytes] | None = None) -> Make:
    """The same with one crafted tensor among others."""
    return pickled({NORM: value, WORDS: crafted_tensor()}, storages)


EVAL = Call("__builtin__", "eval", ("open('pwned', 'w')",))


def bomb(folder: Path) -> None:
    """A storage of half a gigabyte of zeros in half a megabyte."""
    with zipfile.ZipFile(folder / TORCH_FILE, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        file.writestr("archive/data.pkl", whole({NORM: crafted_tensor(count=1 << 27, shape=(1 << 27,))}))
        with file.open("archive/data/0", "w") as data:
            for _ in range(512):
                data.write(bytes(1 << 20))


TORCH: dict[str, tuple[Make, str]] = {
    "empty": (write(TORCH_FILE, b""), REFUSED),
    "no archive": (write(TORCH_FILE, b"x" * 1000), REFUSED),
    "an archive without a pickle": (write(TORCH_FILE, b"PK\5\6" + bytes(18)), REFUSED),
    "cut in half": (cut(TORCH_FILE, 0.5), REFUSED),
    "without its end": (cut(TORCH_FILE, 0.99), REFUSED),
    "a negative offset": (crafted(crafted_tensor(offset=-8)), REFUSED),
    "an offset after the end": (crafted(crafted_tensor(offset=40)), REFUSED),
    "a huge offset": (crafted(crafted_tensor(offset=2**62)), REFUSED),
    "an offset beyond 64 bits": (crafted(crafted_tensor(offset=2**70)), REFUSED),
    "a negative stride": (crafted(crafted_tensor(stride=(-1,))), REFUSED),
    "a negative stride with an offset": (crafted(crafted_tensor(offset=40, stride=(-2,))), REFUSED),
    "a huge stride": (crafted(crafted_tensor(stride=(2**60,))), REFUSED),
    "a stride beyond 64 bits": (crafted(crafted_tensor(stride=(2**66,))), REFUSED),
    "a stride of zero and a huge shape": (crafted(crafted_tensor(shape=(2**40,), stride=(0,))), REFUSED),
    "fewer strides than dimensions": (crafted(crafted_tensor(shape=(4, 8))), REFUSED),
    "a negative shape": (crafted(crafted_tensor(shape=(-32,))), REFUSED),
    "a huge shape": (crafted(crafted_tensor(shape=(2**40,))), REFUSED),
    "a shape that is a word": (crafted(crafted_tensor(shape="32")), REFUSED),
    "a shape of fractions": (crafted(crafted_tensor(shape=(32.5,))), REFUSED),
    "a tensor of no storage": (crafted(tensor(None, 0, (32,), (1,))), REFUSED),
    "a storage that is missing": (crafted(crafted_tensor(key="7")), REFUSED),
    "a storage of another path": (crafted(crafted_tensor(key="../data.pkl")), REFUSED),
    "a storage of more elements than bytes": (crafted(crafted_tensor(count=10**6, shape=(1000,))), REFUSED),
    "a storage of minus one elements": (crafted(crafted_tensor(count=-1)), REFUSED),
    "a storage of no bytes": (crafted(crafted_tensor(), {"0": b""}), REFUSED),
    "a storage of an unknown type": (crafted(crafted_tensor("NoneSuchStorage")), REFUSED),
    "complex numbers": (crafted(crafted_tensor("ComplexFloatStorage", count=32, shape=(32,))), REFUSED),
    "quantized numbers": (crafted(crafted_tensor("QInt8Storage")), REFUSED),
    "a list": (pickled([1, 2]), REFUSED),
    "numbers in place of tensors": (crafted(3), REFUSED),
    "a dictionary in itself": (pickled(b"}q\0" + parts("self") + b"h\0s"), REFUSED),
    "a bomb": (bomb, REFUSED),
    "a call of os.system": (crafted(Call("posix", "system", ("touch pwned",))), REFUSED),
    "a call of eval": (crafted(EVAL), REFUSED),
    "a call of exec": (crafted(Call("__builtin__", "exec", ("open('pwned', 'w')",))), REFUSED),
    "a call of Popen": (crafted(Call("subprocess", "Popen", (["touch", "pwned"],))), REFUSED),
    "a call of open": (crafted(Call("io", "open", ("pwned", "w"))), REFUSED),
    "an old pickle with a call": (write(TORCH_FILE, whole(EVAL)), REFUSED),
}


def cases() -> Iterator[Case]:
    readers = itertools.cycle(readers_of_model()[:4])
    for damage, (make, end) in SAFE.items():
        yield case(
            next(readers) if end == REFUSED else readers_of_model()[0], f"model.safetensors with {damage}", make, end
        )
    for damage, fields in OTHER_CONFIGS.items():
        make = change_json("model/config.json", lambda value, fields=fields: value | fields)
        yield case(next(readers), f"config.json with {damage}", make, REFUSED)
    readers = itertools.cycle(readers_of_model("torch")[:4])
    for damage, (make, end) in TORCH.items():
        yield case(next(readers), f"pytorch_model.bin with {damage}", make, end)
    encode = readers_of_model()[0]
    for seed, (file, name) in itertools.product(range(12), ((FILE, "model"), (TORCH_FILE, "torch"))):
        yield case(readers_of_model(name)[0], f"{file} changed by seed {seed}", flip(file, seed), EITHER)
    for damage, place in PLACES.items():
        yield case(encode, f"model.safetensors is {damage}", instead(FILE, place), REFUSED)
        yield case(encode, f"the model is {damage}", instead("model", place), REFUSED)
        yield case(encode, f"config.json is {damage}", instead("model/config.json", place), REFUSED)
    for file in (FILE, "model/config.json", "model/tokenizer.json", "model"):
        found = case(encode, f"{file} may not be read", unreadable(file), REFUSED)
        found.options["drop"] = True
        yield found
    shards = [f"sharded/model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    changes = {"a shard is missing": remove(shards[0]), "a shard is empty": write(shards[1], b"")}
    changes |= {"a shard is cut": cut(shards[1], 0.5)}
    changes |= {
        "shards are swapped": both(
            lambda folder: (folder / shards[0]).rename(folder / "x"),
            lambda folder: (folder / shards[1]).rename(folder / shards[0]),
            lambda folder: (folder / "x").rename(folder / shards[1]),
        )
    }
    changes |= {"the index is missing": remove("sharded/model.safetensors.index.json")}
    for damage, make in changes.items():
        for reader in readers_of_model("sharded")[:3]:
            yield case(reader, damage, make, REFUSED_OR_SAME if "swapped" in damage else REFUSED)


def case(reader: Any, damage: str, make: Make, end: str) -> Case:
    output = reader.output if end != REFUSED else ""
    return Case(
        "weights", reader.command, damage, reader.arguments, reader.inputs, make, end, output=output, options={}
    )
