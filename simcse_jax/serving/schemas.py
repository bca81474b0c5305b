"""The bodies of requests and responses, as in OpenAI's API; the OpenAPI page describes them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, StrictStr
from pydantic_core import PydanticCustomError

from simcse_jax.errors import broken

TOKENS = (
    "token ids are of one tokenizer, and not known to be this model's; send text "
    "(LangChain: check_embedding_ctx_length=False)"
)

CHECKED_AT_ONCE = 4096  # texts


def check_texts(value: Any) -> Any:
    """Refuses anything but a text or a list of texts, naming the first mistake."""
    if not isinstance(value, str | list):
        raise PydanticCustomError("texts", "must be a string or a list of strings")
    if not value:
        raise PydanticCustomError("texts", "must not be empty")
    texts = [value] if isinstance(value, str) else value
    for start in range(0, len(texts), CHECKED_AT_ONCE):
        if not _are_good(some := texts[start : start + CHECKED_AT_ONCE]):
            place, message = next((place, mistake) for place, text in enumerate(some) if (mistake := _mistake(text)))
            where = "" if isinstance(value, str) else f"number {start + place} "
            raise PydanticCustomError("texts", "{message}", {"message": where + message})
    return value


def _are_good(texts: list[Any]) -> bool:
    """Whether all are texts, found without a Python step for each, since other requests wait."""
    try:
        "".join(texts).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return "" not in texts


def _mistake(text: Any) -> str | None:
    if not isinstance(text, str):
        is_token = isinstance(text, int | list) and not isinstance(text, bool)
        return f"is not a string; {TOKENS}" if is_token else "is not a string"
    if not text:
        return "must not be empty"
    return None if _are_good([text]) else broken(text)


Texts = Annotated[str | list[str], BeforeValidator(check_texts)]


class Request(BaseModel):
    """The base of all requests: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class EmbeddingsRequest(Request):
    """Texts to encode."""

    input: Texts = Field(description="A text, or a list of texts.", examples=["A man plays a guitar."])
    model: StrictStr = Field(description="The name that /v1/models has.")
    encoding_format: Literal["float", "base64"] | None = Field(
        "float", description="Numbers, or the little-endian bytes of float32 numbers in base64."
    )
    dimensions: StrictInt | None = Field(
        None, description="Keep so many elements of each embedding, and scale what is left to length 1."
    )
    prompt_name: StrictStr | None = Field(
        None, description="The name of one of the model's prompts, such as query; by default the model's own choice."
    )
    user: StrictStr | None = Field(None, description="Ignored.")


class Usage(BaseModel):
    """How many tokens the model has read, special ones and prompts included."""

    prompt_tokens: int
    total_tokens: int


class Embedding(BaseModel):
    """The embedding of a text."""

    object: Literal["embedding"] = "embedding"
    index: int = Field(description="The text's place in the request.")
    embedding: list[float] | str


class Embeddings(BaseModel):
    """The embeddings, in the order of the texts."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class SearchRequest(Request):
    """Queries to the server's index."""

    query: Texts = Field(description="A query, or a list of queries.", examples=["Someone makes music."])
    model: StrictStr | None = Field(None, description="The name that /v1/models has, or none.")
    top_k: StrictInt = Field(5, ge=1, description="At most so many results for each query.")
    threshold: float | None = Field(None, allow_inf_nan=False, description="The smallest score of a result.")


def texts_of(documents: Any) -> Any:
    """Documents as a list of texts, which are those of objects with a field `text`, and may be empty."""
    if not isinstance(documents, list):
        raise PydanticCustomError("texts", "must be a list of strings")
    fields = [item["text"] if isinstance(item, dict) and item.keys() == {"text"} else item for item in documents]
    check_texts([" " if field == "" else field for field in fields])
    return fields


class RerankRequest(Request):
    """A query, and documents to sort by it."""

    query: Annotated[StrictStr, BeforeValidator(check_texts)] = Field(
        description="A text.", examples=["Who makes music?"]
    )
    documents: Annotated[list[str], BeforeValidator(texts_of)] = Field(
        description='Texts, or objects {"text": …}.', examples=[["A man plays a guitar.", "A dog runs."]]
    )
    model: StrictStr | None = Field(None, description="The name of the cross-encoder in /v1/models, or none.")
    top_n: StrictInt | None = Field(None, ge=1, description="At most so many results; by default all.")
    max_tokens_per_doc: StrictInt | None = Field(
        None, ge=1, description="Read only so many tokens of each document, special ones not counted; by default all."
    )
    return_documents: StrictBool | None = Field(False, description="Whether each result has its document.")


class Document(BaseModel):
    """A document of the request."""

    text: str


class RerankResult(BaseModel):
    """A document's score."""

    index: int = Field(description="The document's place in the request.")
    relevance_score: float = Field(description="What the cross-encoder gives, after its activation.")
    document: Document | None = Field(None, description="Only with return_documents.")


class Reranked(BaseModel):
    """The documents, best first, as Cohere's, Jina's and vLLM's servers have them."""

    model: str
    results: list[RerankResult]
    usage: Usage


class SearchResult(BaseModel):
    """A sentence of the index."""

    row: int = Field(description="Its number in the index, from 0.")
    score: float = Field(description="Its similarity to the query: a cosine, unless the model says otherwise.")
    sentence: str


class SearchResults(BaseModel):
    """The results of a query, best first."""

    object: Literal["search_results"] = "search_results"
    index: int = Field(description="The query's place in the request.")
    results: list[SearchResult]


class Searches(BaseModel):
    """The results of all queries, in their order."""

    object: Literal["list"] = "list"
    data: list[SearchResults]
    model: str
    usage: Usage


class Model(BaseModel):
    """The model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="When the server was started, in seconds since 1970.")
    owned_by: str = "simcse_jax"


class Models(BaseModel):
    """The model, and the cross-encoder if there is one."""

    object: Literal["list"] = "list"
    data: list[Model]


class State(BaseModel):
    """Whether the server lives, or is ready."""

    status: str
    ready: StrictBool


class Error(BaseModel):
    """An error in the form of OpenAI's API."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """The body of every answer that is an error."""

    error: Error
