"""The wheel and an editable install: every file is in it, and the recipes are found without a clone."""

import email
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support import ROOT

from simcse_jax import __version__

pytest.importorskip("setuptools", "77", reason="building a wheel needs setuptools 77 or newer (requirements-dev.txt)")
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "simcse_jax", "configs")
RECIPE = """
import sys, site
site.addsitedir(sys.argv[1])  # as the interpreter does with its own site-packages
from simcse_jax.config.flags import parse
from simcse_jax.config.recipes import find_recipe
from simcse_jax.__main__ import dispatch
config, _ = parse(["--config", "configs/unsup_bert.py:large"], needs_workdir=False)
mine, _ = parse(["--config", "mine"], needs_workdir=False)
print(config.model.init_from, mine.seed, find_recipe("ablations/simcse_table3"))
sys.argv = ["simcse-jax", "train", "--help"]
dispatch()
"""
MINE = """from simcse_jax.configs.unsup_bert import get_config as base


def get_config():
    config = base()
    config.seed = 7
    return config
"""


def build(kind: str, source: Path, output: Path) -> Path:
    output.mkdir()
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(output)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(output.glob("*.whl"))


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A clone, as far as a build needs it."""
    folder = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory) -> Path:
    return build("wheel", source, tmp_path_factory.mktemp("wheel") / "out")


def use(site: Path, folder: Path) -> str:
    """What a program prints that uses recipes, from `folder`, with the package installed in `site`."""
    (folder / "mine.py").write_text(MINE)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", RECIPE, str(site)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "usage: simcse-jax train" in done.stdout, done.stderr
    assert " sup_bert:{base,large,neutral,mlm,large_mlm,joint}" in done.stdout
    return done.stdout.splitlines()[0]


def test_every_file_is_in_the_wheel_with_licence_author_and_console_script(wheel, source):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        texts = {name.partition("/")[2]: archive.read(name).decode() for name in names if "-info/" in name}
    wanted = {file.relative_to(source).as_posix() for file in (source / "simcse_jax").rglob("*") if file.is_file()}
    wanted |= {f"simcse_jax/{file.relative_to(source)}" for file in (source / "configs").rglob("*.py")}
    info = f"simcse_jax-{__version__}.dist-info"
    assert not wanted - names
    added = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt")
    assert {name for name in names if not name.startswith("simcse_jax/")} == {f"{info}/{name}" for name in added}
    metadata = email.message_from_string(texts["METADATA"])
    assert (metadata["License-Expression"], metadata["Author"]) == ("Apache-2.0", "The simcse_jax authors")
    assert texts["entry_points.txt"].split("\n")[1] == "simcse-jax = simcse_jax.__main__:main"
    assert texts["licenses/LICENSE"] == (ROOT / "LICENSE").read_text()
    assert "Version 2.0, January 2004" in texts["licenses/LICENSE"]


def test_recipes_are_found_in_an_installed_package(wheel, tmp_path):
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    (tmp_path / "work").mkdir()
    file = tmp_path / "site" / "simcse_jax" / "configs" / "ablations" / "simcse_table3.py"
    assert use(tmp_path / "site", tmp_path / "work") == f"bert-large-uncased 7 {file}"


@pytest.mark.slow
def test_recipes_are_found_in_an_editable_install(source, tmp_path):
    shutil.unpack_archive(build("editable", source, tmp_path / "out"), tmp_path / "site", "zip")
    (tmp_path / "work").mkdir()
    file = source / "configs" / "ablations" / "simcse_table3.py"
    assert use(tmp_path / "site", tmp_path / "work") == f"bert-large-uncased 7 {file}"
