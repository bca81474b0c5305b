import pytest
from pydantic import ValidationError

from simcse_jax.serving import schemas


def test_texts_are_taken_as_they_are_and_the_first_that_is_none_is_named():
    for given in ("a", ["a", "b\0c", " ", "日本"]):
        assert schemas.SearchRequest(query=given).query == given
    request = schemas.EmbeddingsRequest(model="m", input="a")
    assert (request.encoding_format, request.dimensions, request.prompt_name) == ("float", None, None)
    request = schemas.RerankRequest(query="q", documents=["a", {"text": "b"}, "", {"text": ""}])
    assert (request.documents, request.top_n, request.return_documents) == (["a", "b", "", ""], None, False)
    nulls = dict.fromkeys(("model", "top_n", "return_documents", "max_tokens_per_doc"))  # what clients leave open
    assert not schemas.RerankRequest(query="q", documents=["a"], **nulls).return_documents
    for given in ("a", [], [3], [{"text": "a", "title": "b"}], [{}], [["a"]]):
        with pytest.raises(ValidationError):
            schemas.RerankRequest(query="q", documents=given)
    for given, message in MISTAKES:
        with pytest.raises(ValidationError) as found:
            schemas.SearchRequest(query=given)
        assert [error["msg"].startswith(message) for error in found.value.errors()] == [True]


MISTAKES = [
    (3, "must be a string or a list of strings"), (("a",), "must be a string or a list of strings"),
    ("", "must not be empty"), ([], "must not be empty"), (["a", ""], "number 1 must not be empty"),
    (["a", True], "number 1 is not a string"), ([[1, 2]], "number 0 is not a string; token ids are of one tokenizer"),
    (["\udcff"], "number 0 holds a broken character (U+DCFF alone)"),
    (["a", "\ud83d", "\ude00"], "number 1 holds a broken character (U+D83D alone)"),
    ([*"a" * 9000, "", 3], "number 9000 must not be empty"),
]  # fmt: skip
