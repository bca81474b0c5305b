"""Corpora that the tests of `corpus/` share. Only read them."""

import pytest
from support.corpora import prepare


@pytest.fixture(scope="session")
def triplets(shared, tiny_bert, corpus):
    """The prepared rows of `corpus["csv"]`: 40 triplets with their text."""
    return shared("prepared-triplets", lambda folder: prepare(folder, tiny_bert, corpus["csv"], keep_text=True))


@pytest.fixture(scope="session")
def lines(shared, tiny_bert, corpus):
    """The prepared rows of `corpus["txt"]`: 40 sentences."""
    return shared("prepared-lines", lambda folder: prepare(folder, tiny_bert, corpus["txt"]))
