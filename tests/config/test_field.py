import pytest

from simcse_jax.config.field import BELOW_ONE, Field, explain, field, number
from simcse_jax.errors import UserError


def test_a_field_is_compiled_in_and_a_number_is_an_argument():
    assert field(3, "Three.", BELOW_ONE) == Field(3, "Three.", (BELOW_ONE,))
    assert number(0.5, "Half.") == Field(0.5, "Half.", of_step=True)


def test_choices_are_explained_by_name():
    assert explain({"a": "the first", "b": "the last"}) == "a: the first; b: the last"


def test_a_rate_is_below_one():
    BELOW_ONE.check("config.x", 0.0)
    with pytest.raises(UserError, match=r"config\.x=1\.0: must be at least 0 and below 1"):
        BELOW_ONE.check("config.x", 1.0)
