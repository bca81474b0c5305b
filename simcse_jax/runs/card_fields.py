"""The fields of a model card's front matter that its owner sets: licence, base model, languages."""

import re
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from simcse_jax.errors import UserError, option
from simcse_jax.huggingface.hub import split_name

LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]*")
LANGUAGE = re.compile(r"[a-z]{2,3}|multilingual|code")  # ISO 639, and the hub's own words


class CardFields(TypedDict, total=False):
    """The fields that can be set; None leaves one out."""

    license: str | None  # the hub's identifier
    base_model: str | None  # the hub's name of the model that training started from
    language: str | Sequence[str] | None  # codes of ISO 639, multilingual or code; a string has commas in between


def card_fields(**options: Unpack[CardFields]) -> dict[str, Any]:
    """The fields in the form of the front matter.

    Raises:
      UserError: naming a field that the hub would refuse.
    """
    license, base_model, language = options.get("license"), options.get("base_model"), options.get("language")
    fields: dict[str, Any] = {}
    if license is not None:
        if not isinstance(license, str) or not LICENSE.fullmatch(license):
            requirement = "must be one of the hub's identifiers, such as apache-2.0 or mit"
            raise UserError(f"{option('license', license)}: {requirement}")
        fields["license"] = license
    if base_model is not None:
        name = split_name(base_model) if isinstance(base_model, str) else None
        if name is None or name[1] is not None:
            requirement = "must be a model's name on the hub, such as bert-base-uncased or OWNER/NAME"
            raise UserError(f"{option('base_model', base_model)}: {requirement}")
        fields["base_model"] = base_model
    if language is not None:
        codes = language.split(",") if isinstance(language, str) else language
        codes = codes if isinstance(codes, list | tuple) else []
        codes = [code.strip() if isinstance(code, str) else "" for code in codes]
        if not codes or not all(LANGUAGE.fullmatch(code) for code in codes):
            requirement = "must be codes of ISO 639, such as en or en,de; or multilingual"
            raise UserError(f"{option('language', language)}: {requirement}")
        fields["language"] = list(dict.fromkeys(codes))
    return fields
