"""The fields of a model card's front matter that its owner sets: licence, base model, languages."""

from collections.abc import Sequence
from typing import Any, TypedDict


class CardFields(TypedDict, total=False):
    """The fields that can be set; None leaves one out. The hub checks them when a card is pushed."""

    license: str | None  # the hub's identifier, such as apache-2.0
    base_model: str | None  # the hub's name of the model that training started from
    language: str | Sequence[str] | None  # codes of ISO 639, multilingual or code; a string has commas in between


def card_fields(
    *, license: str | None = None, base_model: str | None = None, language: str | Sequence[str] | None = None
) -> dict[str, Any]:
    """The fields in the form of the front matter."""
    if language is not None:
        codes = language.split(",") if isinstance(language, str) else language
        language = list(dict.fromkeys(code.strip() for code in codes))
    fields = {"license": license, "base_model": base_model, "language": language}
    return {name: value for name, value in fields.items() if value is not None}
