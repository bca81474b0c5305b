import re

import pytest

from simcse_jax.errors import UserError
from simcse_jax.runs.card_fields import card_fields


def test_what_is_given_is_what_the_card_has_and_what_the_hub_would_not_take_is_refused():
    assert card_fields() == card_fields(license=None, base_model=None, language=None) == {}
    assert card_fields(language="en, de,en") == card_fields(language=["en", "de"]) == {"language": ["en", "de"]}
    found = card_fields(license="mit", base_model="bert", language="multilingual")
    assert found == {"license": "mit", "base_model": "bert", "language": ["multilingual"]}
    wrong = {"license": ["", "The MIT License"], "base_model": ["", "package:x", "a/b/c", "a/b@main"]}
    wrong |= {"language": ["", "English", "EN", "en,", [], "en_US"]}
    for name, value in [(name, value) for name, values in wrong.items() for value in values]:
        with pytest.raises(UserError, match="^" + re.escape(f"{name}={value}: must be ")):
            card_fields(**{name: value})
