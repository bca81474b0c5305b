"""Each recipe's resolved fields are those stored in `golden/`."""

import pytest
from support.golden import CONFIGS, golden_texts, read_golden

KEPT = read_golden()


@pytest.fixture(scope="module")
def texts():
    return golden_texts()


@pytest.mark.parametrize("path", KEPT, ids=str)
def test_a_recipe_is_unchanged(path, texts):
    assert texts.get(path) == KEPT[path], "if the change is intended, run `make golden`"


def test_every_recipe_is_stored(texts):
    assert KEPT.keys() == texts.keys()
    files = {path.relative_to(CONFIGS).with_suffix(".txt") for path in CONFIGS.rglob("*.py")}
    assert files == {path for path in KEPT if path.name != "defaults.txt"}
