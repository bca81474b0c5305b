import re

import pytest

from simcse_jax.errors import UserError
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
    ("name", "values"),
    [
        ("license", ["", "The MIT License", 3]),
        ("base_model", ["", "package:x", "a/b/c", "a/b@main", 3]),
        ("language", ["", "English", "EN", "en,", [], ["en", 3], "en_US", 5]),
    ],
)
def test_what_the_hub_would_not_take_is_refused(name, values):
    for value in values:
        with pytest.raises(UserError, match="^" + re.escape(f"{name}={value}: must be ")):
            card_fields(**{name: value})
