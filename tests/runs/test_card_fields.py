import pytest

from simcse_jax.errors import UserError, in_command
from simcse_jax.runs.card_fields import card_fields


def test_what_is_given_is_what_the_card_has():
    assert card_fields() == card_fields(license=None, base_model=None, language=None) == {}
    assert card_fields(language="en, de,en") == card_fields(language=["en", "de"]) == {"language": ["en", "de"]}
    assert card_fields(license="mit", base_model="bert-base-uncased", language="multilingual") == {
        "license": "mit",
        "base_model": "bert-base-uncased",
        "language": ["multilingual"],
    }


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("license", ["", "The MIT License", 3], "must be one of the hub's identifiers"),
        ("base_model", ["", "package:x", "a/b/c", "/models/x", "a/b@main", 3], "must be a model's name on the hub"),
        ("language", ["", "English", "EN", "en,", [], ["en", 3], "en_US", 5, {"en": 1}], "must be codes of ISO 639"),
    ],
)
def test_what_the_hub_would_not_take_is_refused(name, values, told):
    for value in values:
        with pytest.raises(UserError, match=told) as caught:
            card_fields(**{name: value})
        assert str(caught.value).startswith(f"{name}={value}: ")
    token = in_command.set(True)
    with pytest.raises(UserError) as caught:
        card_fields(**{name: values[1]})
    in_command.reset(token)
    assert str(caught.value).startswith(f"--{name.replace('_', '-')} {values[1]}: ")
