import pytest

from simcse_jax.data.rows import MISSING, is_number, is_text, read_text
from simcse_jax.errors import UserError


def test_text_is_read_without_white_space_around_it_and_nothing_else_is_text():
    assert [read_text(value, "here") for value in (" a b ", "", None)] == ["a b", "", ""]
    for value, said in ((MISSING, "is missing"), (3, "holds 3, not text"), ("a\ud83d", "holds a broken character")):
        with pytest.raises(UserError, match=f"here {said}"):
            read_text(value, "here")


def test_half_of_a_character_is_not_text():
    assert is_text("\U0001f600") and not is_text("a\ud83d")


@pytest.mark.parametrize("text", ["7", "-0.5", "4.25e-1", "1/2", "0,5", "50%", "True", "false"])
def test_numbers(text):
    assert is_number(text) and not is_number(f"{text} cats")
