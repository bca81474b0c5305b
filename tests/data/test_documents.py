import numpy as np
import pytest
from support.data import raises

from simcse_jax.data.documents import Spans, cut_spans, draw_spans, next_sentences, read_documents
from simcse_jax.data.draws import document_generator

RELEASED = Spans(anchors=2, positives=2, shortest=32, longest=512, tokens=2048)


def cut(documents, seed=1, **changes):
    spans = Spans(2, 2, 2, 4, 16)._replace(**changes)
    numbers = [np.array(document.split(), np.int32) for document in documents]
    texts = iter(numbers)
    return cut_spans(documents, lambda _: next(texts), lambda ids: " ".join(map(str, ids)), spans, seed, "books.txt")


def test_next_sentences_and_spans_of_documents_are_drawn_with_the_distributions_of_the_papers():
    assert read_documents([]) == read_documents(["", " "]) == []
    assert read_documents(["", "a", "b", "", "\t", " c ", ""]) == [["a", "b"], ["c"]]
    assert read_documents(["a", "b"]) == [["a", "b"]]
    pairs = next_sentences([["a", "b", "c"], ["d"], [], ["e", "f"]], 1, np.random.default_rng(0))
    assert pairs == (["a", "b", "e"], ["b", "c", "f"])
    documents = [[f"{number} {place}" for place in range(5)] for number in range(3000)]
    anchors, positives = next_sentences(documents, 3, np.random.default_rng(0))
    assert len(anchors) == len(set(anchors)) == 4 * len(documents)
    counts = np.zeros((4, 5), int)
    for anchor, positive in zip(anchors, positives, strict=True):
        (document, place), (same, ahead) = anchor.split(), positive.split()
        assert document == same
        counts[int(place), int(ahead) - int(place)] += 1
    shares = np.array([[0, 1 / 3, 1 / 3, 1 / 3, 0]] * 2 + [[0, 1 / 2, 1 / 2, 0, 0], [0, 1, 0, 0, 0]])
    np.testing.assert_allclose(counts / len(documents), shares, atol=0.04)  # at least 4 standard deviations
    for spans in (RELEASED, Spans(3, 1, 1, 4, 24), Spans(1, 3, 8, 8, 16)):
        for document in range(300):
            length = spans.tokens + document % 7
            found = draw_spans(spans, length, document_generator(1, document))
            assert [len(own) for own in found] == [1 + spans.positives] * spans.anchors
            for (start, end), *positives in found:
                for first, last in [(start, end), *positives]:
                    assert first >= 0 and last <= length and spans.shortest <= last - first <= spans.longest
                assert start // spans.longest == (end - 1) // spans.longest  # within a block of its own
                for first, last in positives:
                    assert start - (last - first) <= first <= min(end, length - (last - first))
            blocks = sorted(own[0][0] // spans.longest for own in found)
            assert (np.diff(blocks) > 1).all()
    # Beta(4, 2) has the mean 2/3 and the variance 4 · 2 / (36 · 7), Beta(2, 4) the mean 1/3 and the same variance.
    drawn = [draw_spans(RELEASED, 2048, document_generator(2, document)) for document in range(2000)]
    lengths = np.array([[[end - start for start, end in own] for own in found] for found in drawn])
    shares = (lengths - 32) / 480
    for part, mean in ((shares[:, :, 0], 2 / 3), (shares[:, :, 1:], 1 / 3)):
        assert part.mean() == pytest.approx(mean, abs=0.01)
        assert part.var() == pytest.approx(8 / (36 * 7), abs=0.002)
    offsets = [first - own[0][0] for found in drawn for own in found for first, _ in own[1:]]
    assert min(offsets) < -200 and max(offsets) > 200  # before the anchor, and after its start
    inside = [own[0][0] <= first and last <= own[0][1] for found in drawn for own in found for first, last in own[1:]]
    assert 0.1 < np.mean(inside) < 0.9
    starts = [own[0][0] for found in drawn for own in found]
    assert len({start // 512 for start in starts}) == 4 and len({start % 512 for start in starts}) > 300
    documents = [" ".join(map(str, range(100 * n, 100 * n + 20))) for n in range(4)]
    examples = cut(documents)
    assert len(examples.columns) == 3 and len(examples) == 8
    for row, sentences in enumerate(zip(*examples.columns, strict=True)):
        for sentence in sentences:
            numbers = [int(word) for word in sentence.split()]
            assert numbers == list(range(numbers[0], numbers[-1] + 1)) and numbers[0] // 100 == row // 2
    assert cut(documents).columns == examples.columns != cut(documents, seed=2).columns
    assert cut(documents[:2]).columns == tuple(column[:4] for column in examples.columns)
    raises("books.txt: 2 of 3 documents have fewer than 16", cut, ["1 2 3", "4", " ".join("5" * 16)])
