"""What each recipe comes to, with all that it takes from the defaults, is what `golden/` has."""

import pytest
from support.golden import CONFIGS, golden_texts, read_golden

KEPT = read_golden()


@pytest.fixture(scope="module")
def texts():
    return golden_texts()


@pytest.mark.parametrize("path", KEPT, ids=str)
def test_a_recipe_comes_to_what_is_kept(path, texts):
    assert texts.get(path) == KEPT[path], "if that is meant: make golden"


def test_every_recipe_is_kept(texts):
    assert KEPT.keys() == texts.keys()
    files = {path.relative_to(CONFIGS).with_suffix(".txt") for path in CONFIGS.rglob("*.py")}
    assert files == {path for path in KEPT if path.name != "defaults.txt"}
