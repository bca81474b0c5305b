import numpy as np

from simcse_jax.data.equal_texts import numbered


def test_equal_texts_have_one_number_and_different_ones_never():
    rows = [("a", "A"), ("a ", "a"), ("", "é"), ("e\u0301", "")]  # nothing is normalized
    numbers, texts = numbered(rows)
    np.testing.assert_array_equal(numbers, [[0, 1], [2, 0], [3, 4], [5, 3]])
    assert numbers.dtype == np.int32 and texts == ["a", "A", "a ", "", "é", "e\u0301"]

    class Text(str):  # whose hashes are equal: Python's are of 64 bits
        __slots__ = ()

        def __hash__(self):
            return 1

    numbers, _ = numbered([(Text("a"), Text("b")), (Text("b"), Text("c"))])
    np.testing.assert_array_equal(numbers, [[0, 1], [1, 2]])
