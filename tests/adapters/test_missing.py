"""Each adapter where its package is not installed; here it never is."""

import importlib
import sys

import pytest

from simcse_jax.errors import UserError


@pytest.mark.parametrize(
    ("adapter", "package", "module", "extra"),
    [
        ("langchain", "langchain_core", "langchain_core", "langchain"),
        ("llama_index", "llama_index", "llama_index.core", "llama-index"),
        ("haystack", "haystack", "haystack", "haystack"),
    ],
)
def test_a_missing_package_is_said_in_a_line_with_its_extra(adapter, package, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    for name in (module, f"simcse_jax.adapters.{adapter}"):
        if name != package:
            monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(UserError, match=rf'^not installed: {module}; run: pip install "simcse_jax\[{extra}\]"$'):
        importlib.import_module(f"simcse_jax.adapters.{adapter}")
