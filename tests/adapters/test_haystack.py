import pytest
from support import sentences
from support.later import later, needs

from simcse_jax import SimCSE
from simcse_jax.errors import UserError
from simcse_jax.vectors.quantization import ranges_of

needs("haystack", "haystack-ai is not installed (requirements-dev.txt)")
haystack = later("haystack")
writers = later("haystack.components.writers")
retrievers = later("haystack.components.retrievers.in_memory")
stores = later("haystack.document_stores.in_memory")
ours = later("simcse_jax.adapters.haystack")


def test_pipelines_store_and_find_by_the_embeddings_of_the_class_also_after_they_were_written(prompted):
    model, texts, query = SimCSE(prompted, truncate_dim=32), sentences(20), sentences(1, 7)[0]
    store = stores.InMemoryDocumentStore(embedding_similarity_function="cosine")
    indexing = haystack.Pipeline()
    indexing.add_component("embedder", ours.SimCSEDocumentEmbedder(model))
    indexing.add_component("writer", writers.DocumentWriter(store))
    indexing.connect("embedder", "writer")
    given = [haystack.Document(content=text) for text in texts]
    assert indexing.run({"embedder": {"documents": given}}) == {"writer": {"documents_written": 20}}
    assert all(document.embedding is None for document in given)
    own = {document.content: document.embedding for document in store.filter_documents()}
    assert [own[text] for text in texts] == model.encode_document(texts).tolist()
    asking = haystack.Pipeline()
    asking.add_component("embedder", ours.SimCSETextEmbedder(model))
    asking.add_component("retriever", retrievers.InMemoryEmbeddingRetriever(store, top_k=3))
    asking.connect("embedder.embedding", "retriever.query_embedding")
    found = asking.run({"embedder": {"text": query}})["retriever"]["documents"]
    model.similarity_fn_name = "cosine"  # as the store compares
    model.build_index(texts)
    assert [document.content for document in found] == [result.sentence for result in model.search(query, top_k=3)]
    model = SimCSE(prompted)
    ranges = ranges_of(model.encode(sentences(9)))
    options = {"precision": "int8", "ranges": ranges, "document_prompt": "a bird "}
    component = ours.SimCSEDocumentEmbedder(prompted, meta_fields_to_embed=["title", "none", "year"], **options)
    pipeline = haystack.Pipeline()
    pipeline.add_component("embedder", component)
    again = haystack.Pipeline.loads(pipeline.dumps(), allowed_modules=["simcse_jax.adapters.haystack"])
    document = haystack.Document(content="the cat", meta={"title": "a dog", "year": 0})
    (found,) = again.run({"embedder": {"documents": [document]}})["embedder"]["documents"]
    expected = model.encode("a bird a dog\n0\nthe cat", precision="int8", ranges=ranges, prompt="")
    assert found.embedding == expected.tolist() and found.id == document.id
    with pytest.raises(UserError, match="nowhere"):
        ours.SimCSETextEmbedder("nowhere/at-all/ever")
    embedder = ours.SimCSETextEmbedder(prompted, query_prompt="a bird ")
    assert embedder.run("the cat")["embedding"] == model.encode("the cat", prompt="a bird ").tolist()
    with pytest.raises(TypeError, match="normalize_embeddings"):
        ours.SimCSETextEmbedder(prompted, normalize_embeddings=True)
