from simcse_jax.runs.card_fields import card_fields


def test_what_is_given_is_what_the_card_has():
    assert card_fields() == card_fields(license=None, base_model=None, language=None) == {}
    assert card_fields(language="en, de,en") == card_fields(language=["en", "de"]) == {"language": ["en", "de"]}
    found = card_fields(license="mit", base_model="bert", language="multilingual")
    assert found == {"license": "mit", "base_model": "bert", "language": ["multilingual"]}
