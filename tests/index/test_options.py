from support.data import raises

from simcse_jax.index.options import check_precision, check_search


def test_options_of_a_search_and_of_an_index_that_make_no_sense_are_named(monkeypatch):
    for options, message in (
        *(({"top_k": wrong}, f"top_k={wrong!r}: must be a whole number, 1 or more") for wrong in (0, 2.5)),
        *(({"threshold": wrong}, f"threshold={wrong!r}: must be a number") for wrong in ("0.6", float("nan"))),
        ({"backend": "annoy"}, "backend='annoy': not one of jax, faiss"),
        ({"storage": "int4"}, "storage='int4': not one of float32, float16, bfloat16, int8, binary"),
        ({"storage": "binary", "similarity": "dot"}, "compared by cosine, not by dot"),
        ({"precision": "binary", "similarity": "euclidean"}, "compared by cosine, not by euclidean"),
        ({"precision": "int8", "storage": "int8"}, "the index keeps and searches int8"),
        ({"storage": "bfloat16", "backend": "faiss"}, "not by cosine in bfloat16"),
        ({"backend": "faiss", "similarity": "manhattan"}, "compares by cosine or dot, in float32"),
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
    check_search(5, None, similarity="manhattan", storage="int8")
    check_search(1, -1, precision="binary")
    check_search(5, None, "faiss", "dot", "int8")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    raises("backend='faiss': not installed: faiss; run: pip install", check_search, 5, None, "faiss")
