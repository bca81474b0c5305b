import numpy as np
from support.data import raises

from simcse_jax.index.options import check_precision, check_search


def test_options_of_a_search_and_of_an_index_that_make_no_sense_are_named(monkeypatch):
    for options, message in (
        *(({"top_k": wrong}, f"top_k={wrong!r}: must be a whole number, 1 or more") for wrong in (0, 2.5, True)),
        *(({"threshold": wrong}, f"threshold={wrong!r}: must be a number") for wrong in ("0.6", float("nan"), True)),
        ({"recall_target": 0}, "recall_target=0: must be above 0"),
        ({"recall_target": 1.1}, "recall_target=1.1: must be above 0 and at most 1"),
        ({"backend": "annoy"}, "backend='annoy': not one of jax, faiss"),
        ({"storage": "int4"}, "storage='int4': not one of float32, float16, bfloat16, int8, binary"),
        ({"storage": "binary", "similarity": "dot"}, "compared by cosine, not by dot"),
        ({"precision": "binary", "similarity": "euclidean"}, "compared by cosine, not by euclidean"),
        ({"precision": "int8", "storage": "int8"}, "the index keeps and searches int8"),
        ({"rescore": 4}, "rescore=4: is for storage='int8' or 'binary'"),
        ({"rescore": 4, "storage": "float16"}, "rescore=4: is for storage='int8' or 'binary'"),
        ({"rescore": 4, "precision": "int8"}, "rescore=4: all rows of int8 are scored"),
        ({"rescore": 4, "precision": "binary"}, "rescore=4: all rows of binary are scored"),
        *(({"rescore": wrong, "storage": "int8"}, "from 1 to 1024") for wrong in (0, 1025, True, 2.0)),
        ({"storage": "bfloat16", "backend": "faiss"}, "storage='bfloat16': is for backend='jax'"),
        ({"backend": "faiss", "similarity": "manhattan"}, "compares by cosine or dot, not by manhattan"),
    ):
        raises(message, check_search, **{"top_k": 5, "threshold": None, **options})
    check_precision("int8", "dot", True)
    for arguments, message in (
        (("uint8", "cosine"), "precision 'uint8' of an index is not one of float32, int8, binary"),
        ((None, "cosine"), "precision None"),
        (("binary", "dot"), "compared by cosine"),
        (("binary", "cosine", True), "ranges: are for an index of int8"),
        (("float32", "cosine", True), "ranges: are for an index of int8"),
    ):
        raises(message, check_precision, *arguments)
    check_search(5, None, storage="int8", similarity="manhattan", rescore=np.int64(1))
    check_search(1, -1, 1.0, precision="binary")
    check_search(5, None, backend="faiss", similarity="dot")
    check_search(5, None, backend="faiss", precision="binary", rescore=1024)
    check_search(5, None, backend="faiss", storage="int8", rescore=2)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    raises("backend='faiss': not installed: faiss; run: pip install", check_search, 5, None, backend="faiss")
