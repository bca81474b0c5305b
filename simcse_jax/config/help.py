"""The `--help` text of flags, recipes and fields."""

import textwrap
from collections.abc import Mapping
from pathlib import Path

from simcse_jax.config.flags import fields_meant, no_such_field
from simcse_jax.config.recipes import FOLDER, list_recipes
from simcse_jax.errors import UserError, show
from simcse_jax.field import Field

WIDTH = 100


def describe_flags(flags: Mapping[str, str]) -> str:
    """Each flag with its meaning."""
    return "\n".join(["flags:", *(_entry(flag, meaning) for flag, meaning in flags.items())])


def describe_recipes(folder: Path) -> str:
    """Each recipe of a folder of the package: its name, its variants and the first line of its docstring."""
    lines = [
        "recipes: --config NAME or NAME:VARIANT; the first variant is the default. To change more than fields, copy a "
        f"file from {folder}."
    ]
    for recipe in list_recipes(folder):
        name = recipe.file.relative_to(FOLDER).with_suffix("").as_posix()
        variants = f":{{{','.join(recipe.variants)}}}" if recipe.variants else ""
        lines.append(_entry(f"{name}{variants}", recipe.about))
    return "\n".join([*textwrap.wrap(lines[0], WIDTH), *lines[1:]])


def describe_fields(fields: Mapping[str, Field], sections: Mapping[str, str]) -> str:
    """Each section with its heading, and under it its own fields as `describe_field` has them."""
    lines = ["fields, which a recipe may change:"]
    for section in ("", *sections):
        lines += ["", textwrap.fill(f"{section}: {sections[section]}", WIDTH)] if section else []
        for name, field in fields.items():
            if name.rpartition(".")[0] == section:
                lines.append(describe_field(name, field))
    return "\n".join(lines)


def describe_named(name: str, fields: Mapping[str, Field]) -> str:
    """The field of a name, which may be the last part of it, or all fields of a section.

    Raises:
      UserError: when there is no such field or section.
    """
    defaults = {field: one.default for field, one in fields.items()}
    inside = [field for field in fields if f"{field}.".startswith(f"{name}.")]
    meant = inside or fields_meant(name.replace("-", "_"), defaults)
    if not meant:
        raise UserError(f"--help {name:.60}: {no_such_field(name, defaults)}")
    return "\n".join(describe_field(field, fields[field]) for field in meant)


def describe_field(name: str, field: Field) -> str:
    """A field with its default, meaning, type and rules."""
    return _entry(f"--config.{name}={show(field.default)}", f"{field.meaning} {field.kind}.")


def _entry(name: str, text: str) -> str:
    return "\n".join([f"  {name}", *textwrap.wrap(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)])
