import inspect
import re

import numpy as np
import pytest
from support.data import raises

from simcse_jax import SimCSE
from simcse_jax.encoding.arguments import ELSEWHERE, METHODS, OURS, advice, embeddings_or_sentences, names_ours


def test_embeddings_become_one_array_and_anything_without_numbers_is_left_as_it_is():
    for given in ("the cat", ["the cat", "a dog"], [], ("a", None), [b"a"], 7, None, [["a", "b"]]):
        found = embeddings_or_sentences(given, 3)
        assert found == (list(given) if isinstance(given, tuple) else given) and not isinstance(found, np.ndarray)
    texts = ["the cat", "a dog"]
    for given in (iter(texts), np.array(texts), np.array(texts, object)):
        assert list(embeddings_or_sentences(given, 3)) == texts
    assert embeddings_or_sentences(np.array("the cat"), 3) == "the cat"
    assert embeddings_or_sentences(["the cat", 1.0], 3) == ["the cat", 1.0]
    for kind in (np.array, list, tuple, iter, lambda rows: [np.float32(row) for row in rows]):
        for rows in ([1.0, 2.0, 3.0], [[1, 2, 3], [4, 5, 6]]):
            found = embeddings_or_sentences(kind(rows), 3)
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, rows)
    assert embeddings_or_sentences(np.zeros((0, 3)), 3).shape == (0, 3)


def test_mistakes_are_one_clear_line():
    for given, message in (
        ([1.0, 2.0], "embeddings of shape (2,); this model's are (3,) or (N, 3)"),
        (np.float32(1), "shape ()"),
        ([[1.0, 2.0, 3.0], [1.0, 2.0]], "embedding 1 has shape (2,), embedding 0 (3,)"),
        ([1.0, "the cat"], "item 1 is 'the cat', item 0 is 1.0; give one kind alone"),
        ([np.zeros(3), None], "item 1 is None"),
        (np.ones((2, 3), complex), "embeddings of type complex128: give real numbers"),
        ([np.ones(3), np.ones(3, complex)], "an embedding of type complex128"),
        (np.ones((2, 3), np.int8), "embeddings of type int8: vectors.quantization.dequantize"),
        (list(np.ones((2, 3), np.uint8)), "embeddings of type uint8: vectors.quantization.dequantize"),
        ({"id": [1], "text": ["a"]}, "a dict with the columns id, text: give one column of sentences"),
        ({"a", "b"}, "a set, not a list"),
        ([0.0, np.nan, 1.0], "the embedding has a NaN or infinite element"),
        ([[0.0, 0.0, 0.0], [0.0, np.inf, 1.0]], "embedding 1 has a NaN or infinite element"),
    ):
        raises(message, embeddings_or_sentences, given, 3)


def test_the_advice_fits_the_method_which_has_the_arguments_that_it_gives():
    @names_ours
    def encode(sentences, *, batch_size=64):
        return batch_size

    assert "batch_size" in METHODS and encode([], batch_size=2) == 2
    with pytest.raises(TypeError, match="has no argument batch=; the nearest one is batch_size="):
        encode([], batch=2)
    for method, name, expected in (
        ("encode", "normalize_embeddings", "use normalize_to_unit="),
        ("__init__", "normalize", "normalize_to_unit= is an argument of encode"),
        ("search", "normalize_to_unit", "it is an argument of encode"),
        ("__init__", "max_seq_length", "max_length= is an argument of encode"),
        ("search", "show_progress", "show_progress_bar= is an argument of encode, build_index and add_to_index"),
        ("encode", "inputs", "use sentences="),
        ("encode", "torch_dtype", "dtype= is an argument of SimCSE(…)"),
        ("search", "batch_size", "it is an argument of SimCSE(…) and of encode"),
        ("similarity", "keys", "the arguments are a and b"),
        ("encode", "queries", "use sentences="),
        ("add_to_index", "num_cells", ELSEWHERE["num_cells"]),
    ):
        assert advice(name, list(inspect.signature(getattr(SimCSE, method)).parameters)) == expected
    for ours, methods in METHODS.items():
        for method in re.findall(r"\w+", methods.replace("SimCSE(…)", "__init__")):
            if method not in ("and", "of"):
                assert ours in inspect.signature(getattr(SimCSE, method)).parameters, (ours, method)
    assert set(OURS.values()) <= METHODS.keys()
