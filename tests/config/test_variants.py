import pytest
from support import ROOT

from simcse_jax.config import choose_variant
from simcse_jax.config.variants import NoSuchVariant, Recipe, list_recipes, load_file, variants_of
from simcse_jax.errors import UserError


def test_a_variant_is_chosen_by_its_name():
    assert choose_variant("large", {"base": 1, "large": 2}) == 2
    with pytest.raises(UserError, match=r"^no variant 'huge' of this config; it has base, large$") as caught:
        choose_variant("huge", {"base": 1, "large": 2})
    assert isinstance(caught.value, NoSuchVariant) and caught.value.known == ("base", "large")


def test_variants_are_found_with_the_default_one_first(tmp_path):
    def variants(code):
        (tmp_path / "x.py").write_text(f"from simcse_jax.config import choose_variant\n{code}\n")
        return variants_of(load_file(tmp_path / "x.py"))

    choosing = "    return choose_variant(size, {'base': 1, 'large': 2})"
    assert variants(f"def get_config(size='large'):\n{choosing}") == ("large", "base")
    assert variants("def get_config():\n    return 1") == ()
    assert variants("def get_config(rate='0.1'):\n    return rate") == ()  # any text is one
    assert variants_of(load_file(ROOT / "configs" / "sup_bert.py")) == (
        "base",
        "large",
        "neutral",
        "mlm",
        "large_mlm",
        "joint",
    )


def test_recipes_are_listed_and_a_broken_one_says_why(tmp_path):
    (tmp_path / "b.py").write_text('"""One line.\n\nAnother.\n"""\n\ndef get_config():\n    pass\n')
    (tmp_path / "a.py").write_text("1 / 0\n")
    assert list_recipes(tmp_path) == [
        Recipe(tmp_path / "a.py", "cannot be loaded: division by zero"),
        Recipe(tmp_path / "b.py", "One line."),
    ]
    assert list_recipes(tmp_path / "none") == []
