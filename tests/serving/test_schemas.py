import pytest
from pydantic import ValidationError

from simcse_jax.serving import schemas


def test_texts_are_taken_as_they_are_and_the_first_that_is_none_is_named():
    for given in (["a"], ["a", "b\0c", " ", "日本"]):
        assert schemas.SearchRequest(query=given).query == given
    assert schemas.SearchRequest(query="a").query == ["a"]
    request = schemas.EmbeddingsRequest(model="m", input="a")
    assert (request.encoding_format, request.dimensions, request.prompt_name) == ("float", None, None)
    request = schemas.RerankRequest(query="q", documents=["a", {"text": "b"}, "", {"text": ""}])
    assert (request.documents, request.top_n, request.return_documents) == (["a", "b", "", ""], None, False)
    nulls = dict.fromkeys(("model", "top_n", "return_documents", "max_tokens_per_doc"))  # what clients leave open
    assert not schemas.RerankRequest(query="q", documents=["a"], **nulls).return_documents
    for given in ("a", [], [3], [{"text": "a", "title": "b"}], [{}], [["a"]]):
        with pytest.raises(ValidationError):
            schemas.RerankRequest(query="q", documents=given)
    for given, place in MISTAKES:
        with pytest.raises(ValidationError) as found:
            schemas.SearchRequest(query=given)
        assert [error["loc"] for error in found.value.errors()] == [("query", *place)]


MISTAKES = [
    (3, ()), (("a",), ()), ("", (0,)), ([], ()), (["a", ""], (1,)), (["a", True], (1,)), ([[1, 2]], (0,)),
    (["\udcff"], (0,)), (["a", "\ud83d", "\ude00"], (1,)), ([*"a" * 9000, "", 3], (9000,)),
]  # fmt: skip
