import numpy as np
from support.data import raises

from simcse_jax.data.sentences import check_sentences
from simcse_jax.encoding.arguments import embeddings_or_sentences


def test_embeddings_become_one_array_and_anything_without_numbers_is_left_as_it_is():
    for given in ("the cat", ["the cat", "a dog"], [], ("a", None), [b"a"], 7, None, [["a", "b"]]):
        found = embeddings_or_sentences(given, 3)
        assert found == (list(given) if isinstance(given, tuple) else given) and not isinstance(found, np.ndarray)
    texts = ["the cat", "a dog"]
    for given in (iter(texts), np.array(texts), np.array(texts, object)):
        assert embeddings_or_sentences(given, 3) == texts
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
        (np.ones((2, 3), np.int8), "embeddings of type int8: vectors.quantization.dequantize"),
        (list(np.ones((2, 3), np.uint8)), "embeddings of type uint8: vectors.quantization.dequantize"),
        ({"id": [1], "text": ["a"]}, ": give one column of sentences"),
        ({"a", "b"}, "a set, not a list"),
        ([0.0, np.nan, 1.0], "an embedding has a NaN or infinite element"),
    ):
        raises(message, embeddings_or_sentences, given, 3)
    for given in ([[1.0, 2.0, 3.0], [1.0, 2.0]], [1.0, "the cat"], [np.zeros(3), None], np.ones((2, 3), bool)):
        raises("sentence 0 is ", lambda given: check_sentences(embeddings_or_sentences(given, 3)), given)
