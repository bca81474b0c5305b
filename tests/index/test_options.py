import numpy as np
import pytest

from simcse_jax.errors import UserError
from simcse_jax.index.options import check_precision, check_search


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"storage": "int4"}, "storage='int4': not one of float32, float16, bfloat16, int8, binary"),
        ({"storage": "binary", "similarity": "dot"}, "compared by cosine, not by dot"),
        ({"precision": "binary", "similarity": "euclidean"}, "compared by cosine, not by euclidean"),
        ({"precision": "int8", "storage": "int8"}, "the index keeps and searches int8"),
        ({"precision": "int8", "storage": "float16"}, "the index keeps and searches int8"),
        ({"rescore": 4}, r"rescore=4: is for storage='int8' or 'binary'"),
        ({"rescore": 4, "storage": "float16"}, r"rescore=4: is for storage='int8' or 'binary'"),
        ({"rescore": 4, "precision": "int8"}, "rescore=4: all rows of int8 are scored"),
        ({"rescore": 4, "precision": "binary"}, "rescore=4: all rows of binary are scored"),
        *(
            ({"rescore": wrong, "storage": "int8"}, "must be a whole number, from 1 to 1024")
            for wrong in (0, True, 2.0, "4")
        ),
        ({"storage": "bfloat16", "backend": "faiss"}, "faiss keeps float32, int8 or binary"),
    ],
)
def test_options_that_make_no_sense_are_named(options, message):
    if options.get("backend"):
        pytest.importorskip("faiss")
    with pytest.raises(UserError, match=message):
        check_search(5, None, **options)


def test_a_truth_value_is_no_threshold():
    with pytest.raises(UserError, match="threshold=True: must be a number"):
        check_search(5, True)


def test_options_that_make_sense():
    check_search(5, None, storage="int8", similarity="manhattan", rescore=np.int64(1))
    check_search(5, None, precision="binary")
    pytest.importorskip("faiss")
    check_search(5, None, backend="faiss", precision="binary", rescore=1024)
    check_search(5, None, backend="faiss", storage="int8", rescore=2)


def test_what_an_index_keeps():
    check_precision("int8", "dot", True)
    for arguments, message in (
        (("uint8", "cosine"), "precision 'uint8' of an index is not one of float32, int8, binary"),
        ((None, "cosine"), "precision None"),
        (("binary", "dot"), "compared by cosine"),
        (("binary", "cosine", True), "ranges: are for an index of int8"),
        (("float32", "cosine", True), "ranges: are for an index of int8"),
    ):
        with pytest.raises(UserError, match=message):
            check_precision(*arguments)
