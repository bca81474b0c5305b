import numpy as np
import pytest

from simcse_jax.data.documents import next_sentences, read_documents


@pytest.mark.parametrize(
    ("lines", "documents"),
    [
        ([], []),
        (["", " "], []),
        (["a", "b"], [["a", "b"]]),
        (["", "a", "b", "", "\t", " c ", ""], [["a", "b"], ["c"]]),
    ],
)
def test_blank_lines_separate_documents(lines, documents):
    assert read_documents(lines) == documents


def test_the_next_sentence_is_in_the_same_document():
    pairs = next_sentences([["a", "b", "c"], ["d"], [], ["e", "f"]], 1, np.random.default_rng(0))
    assert pairs == (["a", "b", "e"], ["b", "c", "f"])


def test_the_next_three_are_drawn_uniformly_from_the_remaining_sentences():
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
