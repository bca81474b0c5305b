"""The bodies of requests and responses, as in OpenAI's API; the OpenAPI page describes them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field

Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[
    list[Text],
    FailFast(),
    Field(min_length=1),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value, json_schema_input_type=str | list[str]),
]


class Document(BaseModel):
    """A document of a request."""

    text: str


def text_of(document: Any) -> Any:
    """The text of a document that is an object."""
    return document["text"] if isinstance(document, dict) and document.keys() == {"text"} else document


DocumentText = Annotated[str, BeforeValidator(text_of, json_schema_input_type=str | Document)]


class Request(BaseModel):
    """The base of all requests: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class EmbeddingsRequest(Request):
    """Texts to encode."""

    input: Texts = Field(description="A text, or a list of texts.", examples=["A man plays a guitar."])
    model: str = Field(description="The name that /v1/models has.")
    encoding_format: Literal["float", "base64"] | None = Field(
        "float", description="Numbers, or the little-endian bytes of float32 numbers in base64."
    )
    dimensions: int | None = Field(
        None, description="Keep so many elements of each embedding, and scale what is left to length 1."
    )
    prompt_name: str | None = Field(
        None, description="The name of one of the model's prompts, such as query; by default the model's own choice."
    )
    user: str | None = Field(None, description="Ignored.")


class SearchRequest(Request):
    """Queries to the server's index."""

    query: Texts = Field(description="A query, or a list of queries.", examples=["Someone makes music."])
    model: str | None = Field(None, description="The name that /v1/models has, or none.")
    top_k: int = Field(5, ge=1, description="At most so many results for each query.")
    threshold: float | None = Field(None, allow_inf_nan=False, description="The smallest score of a result.")


class RerankRequest(Request):
    """A query, and documents to sort by it."""

    query: Text = Field(description="A text.", examples=["Who makes music?"])
    documents: Annotated[list[DocumentText], FailFast(), Field(min_length=1)] = Field(
        description='Texts, or objects {"text": …}.', examples=[["A man plays a guitar.", "A dog runs."]]
    )
    model: str | None = Field(None, description="The name of the cross-encoder in /v1/models, or none.")
    top_n: int | None = Field(None, ge=1, description="At most so many results; by default all.")
    max_tokens_per_doc: int | None = Field(
        None, ge=1, description="Read only so many tokens of each document, special ones not counted; by default all."
    )
    return_documents: bool | None = Field(False, description="Whether each result has its document.")


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
    ready: bool


class Error(BaseModel):
    """An error in the form of OpenAI's API."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """The body of every answer that is an error."""

    error: Error
