import importlib
import re
import tomllib

from support import ROOT

import simcse_jax


def test_the_version_is_that_of_the_built_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    module, name = project["tool"]["setuptools"]["dynamic"]["version"]["attr"].rsplit(".", 1)
    version = getattr(importlib.import_module(module), name)
    assert version == simcse_jax.__version__ and re.fullmatch(r"\d+\.\d+\.\d+", version)
