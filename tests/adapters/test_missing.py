import importlib
import sys

import pytest

from simcse_jax.errors import UserError

MODULES = {"langchain": "langchain_core", "llama_index": "llama_index.core", "haystack": "haystack"}


@pytest.mark.parametrize(("adapter", "module"), MODULES.items())
def test_a_missing_package_is_said_in_a_line_with_its_extra(adapter, module, monkeypatch):
    package, extra = module.partition(".")[0], adapter.replace("_", "-")
    monkeypatch.setitem(sys.modules, package, None)
    for name in (module, f"simcse_jax.adapters.{adapter}"):
        if name != package:
            monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(UserError, match=rf'^not installed: {module}; run: pip install "simcse_jax\[{extra}\]"$'):
        importlib.import_module(f"simcse_jax.adapters.{adapter}")
