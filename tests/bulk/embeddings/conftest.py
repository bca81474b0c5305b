import pytest
from support import sentences
from support.embedding_folders import begin, encoder_of


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return encoder_of(tiny_bert)


@pytest.fixture
def sources(tmp_path):
    """Two files of 20 and 5 rows, one of them blank."""
    (tmp_path / "a.txt").write_text("\n".join(sentences(20)) + "\n")
    (tmp_path / "b.txt").write_text("\n".join([*sentences(3, 1), "", *sentences(1, 2)]) + "\n")
    return tmp_path / "a.txt", tmp_path / "b.txt"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def plan(folder, encoder, sources):
    """That of the folder, which was begun, in four blocks."""
    return begin(folder, encoder, *sources)
