import numpy as np
import pytest

from simcse_jax.errors import UserError
from simcse_jax.index.options import check_precision, check_search


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"top_k": wrong}, "top_k=.*: must be a whole number, 1 or more") for wrong in (0, 2.5, True)),
        *(({"threshold": wrong}, "threshold=.*: must be a number") for wrong in ("0.6", float("nan"), True)),
        ({"recall_target": 0}, "recall_target=0: must be above 0"),
        ({"recall_target": 1.1}, "recall_target=1.1: must be above 0 and at most 1"),
        ({"backend": "annoy"}, "backend='annoy': not one of jax, faiss"),
        ({"storage": "int4"}, "storage='int4': not one of float32, float16, bfloat16, int8, binary"),
        ({"storage": "binary", "similarity": "dot"}, "compared by cosine, not by dot"),
        ({"precision": "binary", "similarity": "euclidean"}, "compared by cosine, not by euclidean"),
        ({"precision": "int8", "storage": "int8"}, "the index keeps and searches int8"),
        ({"rescore": 4}, r"rescore=4: is for storage='int8' or 'binary'"),
        ({"rescore": 4, "storage": "float16"}, r"rescore=4: is for storage='int8' or 'binary'"),
        ({"rescore": 4, "precision": "int8"}, "rescore=4: all rows of int8 are scored"),
        ({"rescore": 4, "precision": "binary"}, "rescore=4: all rows of binary are scored"),
        *(({"rescore": wrong, "storage": "int8"}, "from 1 to 1024") for wrong in (0, 1025, True, 2.0)),
        ({"storage": "bfloat16", "backend": "faiss"}, "storage='bfloat16': is for backend='jax'"),
        ({"backend": "faiss", "similarity": "manhattan"}, "compares by cosine or dot, not by manhattan"),
    ],
)
def test_options_that_make_no_sense_are_named(options, message):
    with pytest.raises(UserError, match=message):
        check_search(**{"top_k": 5, "threshold": None, **options})


def test_options_that_make_sense_and_faiss_must_be_installed(monkeypatch):
    check_search(5, None, storage="int8", similarity="manhattan", rescore=np.int64(1))
    check_search(1, -1, 1.0, precision="binary")
    check_search(5, None, backend="faiss", similarity="dot")
    check_search(5, None, backend="faiss", precision="binary", rescore=1024)
    check_search(5, None, backend="faiss", storage="int8", rescore=2)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^backend='faiss': not installed: faiss; run: pip install"):
        check_search(5, None, backend="faiss")


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
