import asyncio

from support import sentences
from support.later import later, needs

from simcse_jax import SimCSE

needs("langchain_core", "langchain-core is not installed (requirements-dev.txt)")
vectorstores = later("langchain_core.vectorstores")
ours = later("simcse_jax.adapters.langchain")


def test_a_vector_store_asynchronous_calls_and_options_give_the_embeddings_of_the_class(prompted):
    model, texts = SimCSE(prompted, truncate_dim=32), sentences(20)
    store = vectorstores.InMemoryVectorStore.from_texts(texts, ours.SimCSEEmbeddings(model))
    vectors = [document["vector"] for document in store.store.values()]
    assert vectors == model.encode_document(texts).tolist()
    query = sentences(1, 7)[0]
    found = [document.page_content for document in store.as_retriever(search_kwargs={"k": 3}).invoke(query)]
    model.similarity_fn_name = "cosine"  # as the store compares
    model.build_index(texts)
    assert found == [result.sentence for result in model.search(query, top_k=3)]
    model, texts = SimCSE(prompted), sentences(3)
    adapter = ours.SimCSEEmbeddings(str(prompted), query_prompt="a bird ", normalize_to_unit=True, truncate_dim=3)

    async def both():
        return await asyncio.gather(adapter.aembed_query(texts[0]), adapter.aembed_documents(texts))

    options = {"normalize_to_unit": True, "truncate_dim": 3}
    query, documents = asyncio.run(both())
    assert query == model.encode(texts[0], prompt="a bird ", **options).tolist()
    assert documents == model.encode_document(texts, **options).tolist()
