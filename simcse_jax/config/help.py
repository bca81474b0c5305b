"""The `--help` text of flags, recipes and fields."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcse_jax.config.recipes import FOLDER, list_recipes
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
    """Each section with its heading, and under it its own fields with default, meaning, type and rules."""
    lines = ["fields, which a recipe may change:"]
    for section in ("", *sections):
        lines += ["", textwrap.fill(f"{section}: {sections[section]}", WIDTH)] if section else []
        for name, field in fields.items():
            if name.rpartition(".")[0] == section:
                kind = "list, with commas" if isinstance(field.default, tuple) else type(field.default).__name__
                kind = "; ".join([f"Type {kind}", *(rule.words for rule in field.rules)])
                lines.append(_entry(f"--config.{name}={_show(field.default)}", f"{field.meaning} {kind}."))
    return "\n".join(lines)


def _show(default: Any) -> str:
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _entry(name: str, text: str) -> str:
    return "\n".join([f"  {name}", *textwrap.wrap(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)])
