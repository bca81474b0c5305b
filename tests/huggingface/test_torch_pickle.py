import io
import pickle
from collections import OrderedDict

import pytest
from support.pickles import Call, parts, storage, tensor, whole

from simcse_jax.huggingface import torch_pickle
from simcse_jax.huggingface.torch_pickle import Tensor, TorchStorage, read_pickle

FLOATS = TorchStorage("FloatStorage", "0", 6)


def read(content: bytes):
    return read_pickle(io.BytesIO(content))


def test_plain_values_are_those_of_pickle_and_a_tensor_is_its_place_in_a_storage():
    value = {"a": [1, -2, 3.5, 2**40, True, False, None], "b": ("x", "é" * 300, (1, 2), ()), 3: [], "c": {}, "d": (1,)}
    value["again"] = value["b"]
    for protocol in (2, 3, 4, 5):
        assert read(pickle.dumps(value, protocol)) == (value, [])
        assert read(pickle.dumps(OrderedDict(value), protocol)) == (value, [])
    found = read(whole(tensor(storage("FloatStorage", "0", 6), 1, (2,), (3,), False)))
    assert found == (Tensor(FLOATS, 1, (2,), (3,)), [FLOATS])
    assert (FLOATS.size, FLOATS.dtype) == (24, "<f4")
    parameter = Call("torch._utils", "_rebuild_parameter", (tensor(storage("FloatStorage", 0, 6), 1, [2], [3]), True))
    assert read(whole(parameter))[0] == Tensor(FLOATS, 1, (2,), (3,))
    assert read(whole(Call("collections", "OrderedDict", ([("a", 1)],)))) == ({"a": 1}, [])


def test_the_length_is_limited_also_of_what_is_read_again_and_anything_else_is_refused(monkeypatch):
    file = io.BytesIO(whole(1) + whole("b") + b"rest")  # several in a file
    assert (read_pickle(file)[0], read_pickle(file)[0], file.read()) == (1, "b", b"rest")
    monkeypatch.setattr(torch_pickle, "LIMIT", 1000)
    assert read(whole([None] * 900))[0] == [None] * 900
    with pytest.raises(ValueError, match="longer than 1000 bytes"):
        read(whole([None] * 1000))
    monkeypatch.setattr(torch_pickle, "LIMIT", 50_000)
    pairs = b"](" + parts(("a", 1)) * 100 + b"eq\x00ccollections\nOrderedDict\nq\x01"
    with pytest.raises(ValueError, match="damaged"):
        read(b"\x80\x02" + pairs + b"h\x01h\x00\x85R" * 600 + b".")
    refused = {
        r"os\.system": whole(Call("os", "system", ("true",))),
        r"torch\.Size": whole(Call("torch", "Size", ((1,),))),
        "the instruction EMPTY_SET": pickle.dumps({1}),
        "the instruction SHORT_BINBYTES": pickle.dumps({"a": b"bytes"}),
        "damaged": whole(Call("torch", "FloatStorage", ())),
        "damaged|": b"\x80\x02.",
        "pickle exhausted|no end": b"\x80\x02",
        "no end|pickle exhausted": b"",
        "unknown": b"\xff",
    }
    for message, content in refused.items():
        with pytest.raises(ValueError, match=message):
            read(content)
