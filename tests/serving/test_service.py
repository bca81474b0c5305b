import asyncio

import numpy as np
import pytest
from support.fake_server import FakeEncoder, FakeReranker

from simcse_jax.index.index import Index
from simcse_jax.serving.replies import Later, Refused
from simcse_jax.serving.service import QUERIES, Limits, Service


def play(scene, encoders=None, **options):
    encoder, limits = FakeEncoder(), Limits(**options.pop("limits", {}))

    async def main():
        service = Service("fake", encoders or {None: encoder}, limits, **options)
        service.start()
        try:
            async with asyncio.timeout(20):
                return await scene(service, encoder)
        finally:
            await service.close()

    return asyncio.run(main())


def test_embeddings_are_those_of_each_text_alone_and_a_short_request_need_not_wait_for_a_long_one():
    async def scene(service, encoder):
        texts = ["a", "bb", "a", "a longer text", "a"]
        found = await service.embed(texts)
        np.testing.assert_array_equal(found[0], [encoder.alone(text) for text in texts])
        assert found[1] == sum(map(len, texts))
        assert sorted(text for batch in encoder.batches for text in batch) == ["a", "a longer text", "bb"]
        assert service.waiting == 0

    play(scene)
    calls = []

    class Recorded(FakeEncoder):
        def tokenize(self, texts):
            calls.append(list(texts))
            return super().tokenize(texts)

    async def scene(service, _):
        texts = [f"text {number}" for number in range(100)]
        found, _ = await asyncio.gather(service.embed(texts), service.embed(["a"]))
        np.testing.assert_array_equal(found[0], [FakeEncoder().alone(text) for text in texts])
        assert calls.index(["a"]) == 1 and len(calls) == 5
        with pytest.raises(Refused, match=r"input\[2\] has 17 tokens"):  # known before the rest is tokenized
            await service.embed(["a", "a", "seventeen letters", *texts])
        assert len(calls) == 6

    play(scene, {None: Recorded()})


def test_a_text_that_is_too_long_is_refused_or_cut():
    texts = {"seventeen letters": "17 tokens", "x" * 1000: "1,000 characters"}

    async def refuses(service, encoder):
        for text, size in texts.items():
            expected = rf"input\[1\] has {size}; this model reads at most 16 tokens; .* --truncate"
            with pytest.raises(Refused, match=expected) as found:
                await service.embed(["a", text])
            assert (found.value.param, found.value.code) == ("input", "context_length_exceeded")
        assert encoder.batches == []

    async def cuts(service, encoder):
        for text in texts:
            assert (await service.embed([text]))[1] == 16

    play(refuses)
    play(cuts, limits={"cut": True})


def test_prompts_are_those_of_the_model_numbers_of_texts_have_bounds_and_who_ends_it_waits_for_one_program():
    async def scene(service, _):
        found = await service.embed(["a"], "query")
        np.testing.assert_array_equal(found[0], [encoders["query"].alone("q: a")])
        assert found[1] == 4
        with pytest.raises(Refused, match="no prompt 'quary'; its prompts: query"):
            await service.embed(["a"], "quary")

    encoders = {None: FakeEncoder(), "query": FakeEncoder("q: ")}
    play(scene, encoders)

    async def scene(service, encoder):
        for texts in ([], ["a"] * 5):
            with pytest.raises(Refused, match="from 1 to 4"):
                await service.embed(texts)
        with pytest.raises(Later):
            await service.embed(["a", "b", "c", "d"])
        assert len((await service.embed(["a", "a", "a", "b"]))[0]) == 4  # two wait

    play(scene, limits={"inputs": 4, "waiting": 3})

    async def scene(service, encoder):
        encoder.go_on.clear()
        encoder.warm = lambda shape: encoder.warmed.append(shape) or encoder.go_on.wait(20)
        warming = asyncio.create_task(asyncio.to_thread(service.warm))
        while not encoder.warmed:
            await asyncio.sleep(0.01)
        await service.close()
        encoder.go_on.set()
        await warming
        assert len(encoder.warmed) == 1

    encoder = FakeEncoder()
    play(lambda service, _: scene(service, encoder), {None: encoder})


def test_a_search_gives_the_index_s_own_results_and_documents_are_scored_with_their_query_equal_ones_once():
    sentences = [f"text {number}" for number in range(40)]
    index, alone = Index(4), FakeEncoder().alone
    index.add(sentences, np.stack([alone(sentence) for sentence in sentences]))
    asked = []

    def search(queries, top_k):
        asked.append((len(queries), top_k))
        return index.search(queries, top_k)

    async def scene(service, encoder):
        alone_found = await service.search(["text 7"], 3, None)
        assert [one.row for one in alone_found[0][0]][:1] == [7] and len(alone_found[0][0]) == 3
        queries = [f"text {number}" for number in range(20)]
        found = await service.search(queries, 9, 0.5)
        expected = index.search(np.stack([alone(query) for query in queries]), 9, 0.5)
        for got, right in zip(found[0], expected, strict=True):
            assert [one.row for one in got] == [one.row for one in right]
            np.testing.assert_allclose([one.score for one in got], [one.score for one in right], atol=1e-6)
        assert found[1] == sum(map(len, queries))
        with pytest.raises(Refused, match="top_k: 3 queries times 334 results; a request has at most 1001"):
            await service.search(["a", "b", "c"], 334, None)
        service.warm()

    play(scene, search=search, limits={"results": 1001})
    assert set(asked) == {(1, 8), (QUERIES, 16), (20 - QUERIES, 16), (QUERIES, 8)}
    judge = FakeReranker()

    async def scene(service, encoder):
        assert (await service.rerank("ab", ["b", "aab", "b"], None)) == ([1, 0, 2], [3.0, 1.0, 1.0], 4 + 6 + 4)
        assert sorted(text for batch in judge.batches for text in batch) == ["ab|aab", "ab|b"]
        assert (await service.rerank("ab", ["b", "aab", "b"], 2))[:2] == ([1, 0], [3.0, 1.0])
        assert encoder.batches == [] and service.waiting == 0
        assert (await service.rerank("ab", ["", "a"])).scores == [1.0, 0.0]
        cut = await service.rerank("ab", ["b" * 5000, "a b"], max_tokens_per_doc=3)
        assert (cut.scores, cut.tokens, judge.cut) == ([3.0, 2.0], 12, [2])  # both at once
        for place, documents in enumerate((["b" * 14, "b"], ["b", "b" * 14])):
            with pytest.raises(Refused, match=rf"documents\[{place}\] has 17 tokens together with the query;"):
                await service.rerank("ab", documents, max_tokens_per_doc=2**80)
        with pytest.raises(Refused, match=r"documents\[0\] has 2,000 characters; this model"):
            await service.rerank("a" * 2000, ["", "b", "a"])
        service.warm()
        assert judge.warmed == judge.shapes() and encoder.warmed == encoder.shapes()

    play(scene, reranker=("judge", judge))

    async def without(service, encoder):
        with pytest.raises(Refused, match="the server has no --rerank"):
            await service.rerank("ab", ["b"], None)
        with pytest.raises(Refused, match="no index"):
            await service.search(["a"], 1, None)

    play(without)

    async def cut(service, encoder):
        assert (await service.rerank("ab", ["b" * 40, "a"], None)).places == [0, 1]

    play(cut, reranker=("judge", FakeReranker()), limits={"cut": True})
