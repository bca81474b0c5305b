"""Variants of a recipe: `configs/unsup_bert.py:large`."""

from collections.abc import Mapping
from typing import Any

from simcse_jax.errors import UserError


def choose_variant(variant: str, variants: Mapping[str, Any]) -> Any:
    """The entry of `variants` that a config's argument (`configs/unsup_bert.py:large`) names.

    Raises:
      UserError: naming the ones there are.
    """
    if variant not in variants:
        raise UserError(f"no variant {variant!r} of this config; it has {', '.join(variants)}")
    return variants[variant]
