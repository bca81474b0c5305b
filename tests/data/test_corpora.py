import numpy as np
import pytest
from support.tokenized import random_corpus

from simcse_jax.data.corpora import AnyBatches
from simcse_jax.data.one_source import OneSource


@pytest.mark.parametrize("several", [False, True])
def test_a_corpus_is_parts_with_names_and_batches_without_a_thread_are_read_at_once(several):
    corpus = random_corpus(12, 2, 16, 0)
    corpus = OneSource(("a", "b"), (corpus, random_corpus(8, 2, 16, 1))) if several else corpus
    assert len(corpus.names) == len(corpus.parts) == 1 + several
    assert sum(part.num_rows for part in corpus.parts) == corpus.num_rows
    batches = corpus.batches(4, 0)
    assert isinstance(batches, AnyBatches) and not batches.is_reading(0)
    np.testing.assert_array_equal(batches[1]["index"], batches.rows(1, slice(None))["index"])
    padded = batches.sizes(9, 1, unpad=False)
    assert set(padded.tokens) == {()}
