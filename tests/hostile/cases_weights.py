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
from hostile.case import EITHER, REFUSED_OR_SAME, SAME, Case
from hostile.damages import PLACES, Make, change_tensors, cut, flip, instead, remove, swap, unreadable, write
from hostile.json_damages import change_json
from hostile.readers import readers_of_model
from support.pickles import Call, archive, parts, storage, tensor, whole

KIND = "weights"
TORCH_FILE, FILE = "torch/pytorch_model.bin", "model/model.safetensors"
NORM, WORDS = "embeddings.LayerNorm.weight", "embeddings.word_embeddings.weight"
LAST = "encoder.layer.1.output.LayerNorm.weight"


def parts_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The JSON at the start of a safetensors file, and the tensors' bytes."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def header(change: Callable[[dict[str, Any]], object]) -> Make:
    """Changes that JSON; bytes take its place."""

    def make(folder: Path) -> None:
        value, data = parts_of((folder / FILE).read_bytes())
        changed = change(value)
        text = changed if isinstance(changed, bytes) else json.dumps(value).encode()
        (folder / FILE).write_bytes(struct.pack("<Q", len(text)) + text + data)

    return make


def norm(**fields: object) -> Make:
    """Says something else of one tensor."""
    return header(lambda value: value[NORM].update(fields))


def put(name: str, value: Callable[[np.ndarray], np.ndarray]) -> Make:
    return change_tensors(FILE, lambda found: found.update({name: np.ascontiguousarray(value(found[name]))}))


def length(value: int) -> Make:
    """Says another length of the header."""
    return lambda folder: (folder / FILE).write_bytes(struct.pack("<Q", value) + (folder / FILE).read_bytes()[8:])


def renamed(change: Callable[[str], str]) -> Make:
    return change_tensors(FILE, lambda found: [found.update({change(name): found.pop(name)}) for name in list(found)])


SAFE: dict[str, Make] = {
    "empty": write(FILE, b""),
    "a pickle": write(FILE, pickle.dumps({"a": 1})),
    "a pointer of Git LFS": write(FILE, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
    "a header of 2^64 - 1 bytes": length(2**64 - 1),
    "a header of no bytes": length(0),
    "a header nested deeply": header(lambda value: b"[" * 50_000),
    "a negative offset": norm(data_offsets=[-128, 0]),
    "tensors that overlap": header(lambda value: value[NORM].update(data_offsets=value[WORDS]["data_offsets"])),
    "a huge shape": norm(shape=[2**40, 2**40]),
    "a tensor without offsets": header(lambda value: value[NORM].pop("data_offsets")),
    "a missing tensor": change_tensors(FILE, lambda found: found.pop(NORM)),
    "names in upper case": renamed(str.upper),
    "no elements": put(NORM, lambda array: array[:0]),
    "transposed": put(WORDS, np.transpose),
    "a NaN": put("encoder.layer.1.output.dense.bias", lambda array: np.where(np.arange(32) == 3, np.nan, array)),
    "numbers that overflow": put(LAST, lambda array: array * 0 + np.float32(3e38)),
}
READ: dict[str, tuple[Make, str]] = {
    "an additional tensor": (change_tensors(FILE, lambda found: found.update(extra=np.ones(3, "f4"))), SAME),
    "the encoder's prefix": (renamed(lambda name: f"bert.{name}"), SAME),
    "float64": (put(NORM, np.float64), SAME),
    "integers": (put(NORM, lambda array: array.astype(np.int64)), EITHER),
}
SIZES = {"F8_E4M3": 128, "BF16": 64, "F16": 64, "I32": 32, "C64": 16}
READ |= {kind: (norm(dtype=kind, shape=[size]), EITHER) for kind, size in SIZES.items()}
# A BERT's weights with the config of another encoder, or with sizes that are not theirs.
OTHER_CONFIGS: dict[str, dict[str, Any]] = {"narrow embeddings": {"model_type": "electra", "embedding_size": 16}}
OTHER_CONFIGS |= {"a misspelled type": {"model_type": "xlm_roberta"}}
OTHER_CONFIGS |= {"more layers than memory": {"model_type": "modernbert", "num_hidden_layers": 10**15}}
OTHER_CONFIGS |= {"layers of an unknown kind": {"model_type": "modernbert", "layer_types": ["local", "global"]}}


def one(key: str = "0", count: int = 64, offset: Any = 0, shape: Any = (32,), stride: Any = (1,)) -> Call:
    """A tensor of a storage, in a file of the archive, with a number of elements."""
    return tensor(storage("FloatStorage", key, count), offset, shape, stride)


def pickled(content: object) -> Make:
    """The model's weights replaced by these."""
    return lambda folder: (folder / TORCH_FILE).write_bytes(archive(content, {"0": np.ones(64, "<f4").tobytes()}))


def crafted(value: object) -> Make:
    """The same with one crafted tensor among others."""
    return pickled({NORM: value, WORDS: one()})


EVAL = Call("__builtin__", "eval", ("open('pwned', 'w')",))


def bomb(folder: Path) -> None:
    """A storage of half a gigabyte of zeros in half a megabyte."""
    with zipfile.ZipFile(folder / TORCH_FILE, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        file.writestr("archive/data.pkl", whole({NORM: one(count=1 << 27, shape=(1 << 27,))}))
        with file.open("archive/data/0", "w") as data:
            for _ in range(512):
                data.write(bytes(1 << 20))


TORCH: dict[str, Make] = {"no archive": write(TORCH_FILE, b"x" * 1000), "cut in half": cut(TORCH_FILE, 0.5)}
TORCH |= {"a negative offset": crafted(one(offset=-8)), "an offset beyond 64 bits": crafted(one(offset=2**70))}
TORCH |= {"a stride of zero and a huge shape": crafted(one(shape=(2**40,), stride=(0,)))}
TORCH |= {"a shape that is a word": crafted(one(shape="32")), "a storage that is missing": crafted(one(key="7"))}
TORCH |= {"a storage of another path": crafted(one(key="../data.pkl"))}
TORCH |= {"a storage of more elements than bytes": crafted(one(count=10**6, shape=(1000,)))}
TORCH |= {"numbers in place of tensors": crafted(3)}
TORCH |= {"a dictionary in itself": pickled(b"}q\0" + parts("self") + b"h\0s"), "a bomb": bomb}
TORCH |= {"a call of os.system": crafted(Call("posix", "system", ("touch pwned",)))}
TORCH |= {"a call of open": crafted(Call("io", "open", ("pwned", "w")))}
TORCH |= {"an old pickle with a call": write(TORCH_FILE, whole(EVAL))}
SHARDS = [f"sharded/model-0000{number}-of-00002.safetensors" for number in (1, 2)]
OF_SHARDS: dict[str, Make] = {"a shard is missing": remove(SHARDS[0]), "a shard is empty": write(SHARDS[1], b"")}
OF_SHARDS |= {"a shard is cut": cut(SHARDS[1], 0.5)}
OF_SHARDS |= {"the index is missing": remove("sharded/model.safetensors.index.json")}


def cases() -> Iterator[Case]:
    encode, *others = readers = readers_of_model()[:4]
    of_torch, of_shards = readers_of_model("torch")[:4], readers_of_model("sharded")[:3]
    configs = {
        f"config.json with {damage}": change_json("model/config.json", lambda value, fields=fields: value | fields)
        for damage, fields in OTHER_CONFIGS.items()
    }
    refused = {f"model.safetensors with {damage}": make for damage, make in SAFE.items()} | configs
    for reader, (damage, make) in zip(itertools.cycle(readers), refused.items(), strict=False):
        yield reader.case(KIND, damage, make)
    for damage, (make, end) in READ.items():
        yield encode.case(KIND, f"model.safetensors with {damage}", make, end)
    for reader, (damage, make) in zip(itertools.cycle(of_torch), TORCH.items(), strict=False):
        yield reader.case(KIND, f"pytorch_model.bin with {damage}", make)
    for seed in range(6):
        yield encode.case(KIND, f"{FILE} changed by seed {seed}", flip(FILE, seed), EITHER)
        yield of_torch[0].case(KIND, f"{TORCH_FILE} changed by seed {seed}", flip(TORCH_FILE, seed), EITHER)
    for reader, (damage, place) in zip(itertools.cycle(others), PLACES.items(), strict=False):
        for file in (FILE, "model", "model/config.json"):
            yield reader.case(KIND, f"{file} is {damage}", instead(file, place))
    for file in (FILE, "model/config.json", "model/tokenizer.json", "model"):
        yield encode.case(KIND, f"{file} may not be read", unreadable(file), drop=True)
    for reader, (damage, make) in zip(itertools.cycle(of_shards), OF_SHARDS.items(), strict=False):
        yield reader.case(KIND, damage, make)
    yield of_shards[0].case(KIND, "shards are swapped", swap(*SHARDS), REFUSED_OR_SAME)
