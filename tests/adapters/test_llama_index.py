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


def test_no_cache_finds_another_or_a_changed_model_and_ranges_are_those_of_the_beginning(prompted, model, tmp_path):
    store = core.storage.kvstore.SimpleKVStore()
    with pytest.raises(UserError, match="embeddings_cache: LlamaIndex finds embeddings there by their text alone"):
        ours.SimCSEEmbedding(model, embeddings_cache=store)
    adapter = ours.SimCSEEmbedding(model)
    adapter.embeddings_cache = store
    for asked in (adapter.get_query_embedding, adapter.get_text_embedding):
        with pytest.raises(UserError, match="a query would have a document's"):
            asked("the cat")
    keys = set()
    for scale in (1, 2):  # another file of the same name
        np.save(tmp_path / "ranges.npy", scale * ranges_of(model.encode(sentences(9))))
        coded = ours.SimCSEEmbedding(model, precision="int8", ranges=tmp_path / "ranges.npy")
        keys.add(ingestion.get_transformation_hash([core.schema.TextNode(text="the cat")], coded))
    assert len(keys) == 2
    nodes, cache = [core.schema.TextNode(text="the cat", id_="1")], ingestion.IngestionCache()
    other, found = ours.SimCSEEmbedding(SimCSE(prompted, truncate_dim=32, pooler="cls")), []
    for adapter in (ours.SimCSEEmbedding(model), other):
        pipeline = ingestion.IngestionPipeline(transformations=[adapter], cache=cache)
        found.append(pipeline.run(nodes=nodes)[0].embedding)
    assert found[0] == model.encode_document(["the cat"]).tolist()[0] != found[1]
    with pytest.raises(UserError, match="is not the model that these settings were written for"):
        ours.SimCSEEmbedding.from_dict(other.to_dict())
    given, texts = SimCSE(prompted), ["the cat", "a dog"]
    adapter = ours.SimCSEEmbedding(given)
    found = adapter.get_text_embedding_batch(texts)
    given.prompts["document"], given.normalize = "he ran ", True
    assert adapter.get_text_embedding_batch(texts) == found
    assert ours.SimCSEEmbedding(given).get_text_embedding_batch(texts) != found
    adapter.precision = "int8"
    with pytest.raises(UserError, match="give ranges= too"):
        adapter.get_text_embedding_batch(texts)
