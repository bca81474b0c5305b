"""Large libraries that few tests need: every process collects all tests, and would import all of these."""

import importlib
import importlib.util
from typing import Any

import pytest


class later:
    """The module `name`, which is imported when an attribute is first read."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest asks everything whether it is a test or a fixture
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


def needs(package: str, reason: str) -> None:
    """Skips the rest of a file where a package is not installed, without importing it."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(reason, allow_module_level=True)
