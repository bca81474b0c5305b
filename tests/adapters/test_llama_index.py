import asyncio
import pickle

import numpy as np
import pytest
from support import sentences
from support.later import later, needs

from simcse_jax import SimCSE
from simcse_jax.errors import UserError
from simcse_jax.vectors.quantization import ranges_of

needs("llama_index", "llama-index-core is not installed (requirements-dev.txt)")
core = later("llama_index.core")
ingestion = later("llama_index.core.ingestion.pipeline")
ours = later("simcse_jax.adapters.llama_index")


@pytest.fixture(scope="module")
def model(prompted):
    return SimCSE(prompted, truncate_dim=32)


def test_an_index_asynchronous_calls_and_options_give_the_embeddings_of_the_class(model, prompted):
    texts, query = sentences(20), sentences(1, 7)[0]
    adapter = ours.SimCSEEmbedding(model)
    index = core.VectorStoreIndex([core.schema.TextNode(text=text) for text in texts], embed_model=adapter)
    stored = index.vector_store.data.embedding_dict
    own = {index.docstore.get_node(name).text: vector for name, vector in stored.items()}
    assert [own[text] for text in texts] == model.encode_document(texts).tolist()
    found = [hit.node.text for hit in index.as_retriever(similarity_top_k=3).retrieve(query)]
    cosines = model.encode_query(query) @ np.array([own[text] / np.linalg.norm(own[text]) for text in texts]).T
    assert found == [texts[row] for row in np.argsort(-cosines)[:3]]
    texts, ranges = sentences(3), ranges_of(model.encode(sentences(9), truncate_dim=3))
    options = {"truncate_dim": 3, "precision": "uint8", "ranges": ranges}
    adapter = ours.SimCSEEmbedding(str(prompted), document_prompt="a bird ", **options)

    async def all_of_them():
        asked = (adapter.aget_query_embedding(texts[0]), adapter.aget_text_embedding(texts[0]))
        return await asyncio.gather(*asked, adapter.aget_text_embedding_batch(texts))

    query, document, documents = asyncio.run(all_of_them())
    expected = model.encode(texts, prompt="a bird ", **options).tolist()
    assert query == model.encode_query(texts[0], **options).tolist()
    assert (document, documents) == (expected[0], expected)
    assert ours.SimCSEEmbedding.from_dict(adapter.to_dict()).get_text_embedding_batch(texts) == expected
    assert pickle.loads(pickle.dumps(adapter)).get_text_embedding_batch(texts) == expected


def test_no_cache_finds_another_models_embeddings(prompted, model):
    store = core.storage.kvstore.SimpleKVStore()
    with pytest.raises(UserError, match="embeddings_cache: knows texts alone"):
        ours.SimCSEEmbedding(model, embeddings_cache=store)
    with pytest.raises(TypeError, match="normalize_embeddings"):
        ours.SimCSEEmbedding(model, normalize_embeddings=True)
    nodes, cache = [core.schema.TextNode(text="the cat", id_="1")], ingestion.IngestionCache()
    other, found = ours.SimCSEEmbedding(SimCSE(prompted, truncate_dim=32, pooler="cls")), []
    for adapter in (ours.SimCSEEmbedding(model), other, ours.SimCSEEmbedding(model, truncate_dim=3)):
        pipeline = ingestion.IngestionPipeline(transformations=[adapter], cache=cache)
        found.append(pipeline.run(nodes=nodes)[0].embedding)
    assert found[0] == model.encode_document(["the cat"]).tolist()[0] != found[1]
    assert len(found[2]) == 3
