"""Each recipe resolves to its text in `golden/`, defaults included."""

import pytest
from support.golden import CONFIGS, golden_texts, read_golden

KEPT = read_golden()


@pytest.fixture(scope="module")
def texts():
    return golden_texts()


@pytest.mark.parametrize("path", KEPT, ids=str)
def test_a_recipe_resolves_to_its_golden_text(path, texts):
    assert texts.get(path) == KEPT[path], "if the change is intended: make golden"


def test_every_recipe_has_a_golden_text(texts):
    assert KEPT.keys() == texts.keys()
    files = {path.relative_to(CONFIGS).with_suffix(".txt") for path in CONFIGS.rglob("*.py")}
    assert files == {path for path in KEPT if path.name != "defaults.txt"}
