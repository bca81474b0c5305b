"""The fields of a model card's front matter that its owner sets: licence, base model, languages."""

import re
from collections.abc import Sequence
from typing import Any, TypedDict

from simcse_jax.errors import UserError, option
from simcse_jax.huggingface.hub import split_name

LICENSE = re.compile(r"[a-z0-9][a-z0-9.-]*")
LANGUAGE = re.compile(r"[a-z]{2,3}|multilingual|code")  # ISO 639, and the hub's own words


class CardFields(TypedDict, total=False):
    """The fields that can be set; None leaves one out."""

    license: str | None  # the hub's identifier
    base_model: str | None  # the hub's name of the model that training started from
    language: str | Sequence[str] | None  # codes of ISO 639, multilingual or code; a string has commas in between


def card_fields(
    *, license: str | None = None, base_model: str | None = None, language: str | Sequence[str] | None = None
) -> dict[str, Any]:
    """The fields in the form of the front matter.

    Raises:
      UserError: naming a field that the hub would refuse.
    """
    given = {"license": license, "base_model": base_model, "language": language}
    fields: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not LICENSE.fullmatch(str(fields.get("license", "mit"))):
        raise _refused("license", fields, "one of the hub's identifiers, such as apache-2.0 or mit")
    name = split_name(str(fields.get("base_model", "bert-base-uncased")))
    if name is None or name[1] is not None:
        raise _refused("base_model", fields, "a model's name on the hub, such as bert-base-uncased or OWNER/NAME")
    if language is not None:
        codes = [str(code).strip() for code in (language.split(",") if isinstance(language, str) else language)]
        if not codes or not all(LANGUAGE.fullmatch(code) for code in codes):
            raise _refused("language", fields, "codes of ISO 639, such as en or en,de; or multilingual")
        fields["language"] = list(dict.fromkeys(codes))
    return fields


def _refused(name: str, fields: dict[str, Any], requirement: str) -> UserError:
    return UserError(f"{option(name, fields[name])}: must be {requirement}")
