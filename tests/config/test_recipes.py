"""The file that `--config` means, and the imports of config files."""

import os
import subprocess
import sys

import pytest
from support import ROOT

from simcse_jax.config import choose_variant, recipes
from simcse_jax.config.flags import parse
from simcse_jax.config.recipes import (
    FOLDER,
    ListedRecipe,
    NoSuchVariant,
    find_recipe,
    list_recipes,
    load_file,
    read_variants,
    recipe_names,
)
from simcse_jax.errors import UserError

CHAIN = {  # a local file that imports a local module, which imports a recipe of the package
    "mine.py": "from my_base import get_config\n",
    "my_base.py": "from simcse_jax.configs.ablations import simcse_table3\n"
    "from simcse_jax.configs.unsup_bert import get_config as base\n\n\ndef get_config():\n    config = base('large')\n"
    "    config.seed = len(simcse_table3.get_variants())\n    return config\n",
}
SHOW = """
from simcse_jax.config.flags import parse
config, _ = parse(["--config=mine"], needs_workdir=False)
print(config.model.init_from, config.seed)
"""


def test_the_recipes_have_names():
    assert FOLDER == ROOT / "configs"
    files = {file.relative_to(FOLDER).as_posix() for file in FOLDER.rglob("*.py")}
    assert {f"{name}.py" for name in recipe_names()} == files and len(recipe_names()) == len(files) > 20
    outside = [name for name in recipe_names() if "/" not in name]
    assert recipe_names()[: len(outside)] == sorted(outside) and "language_model" in outside
    assert recipe_names().index("unsup_roberta") < recipe_names().index("ablations/isotropy_pooling")


@pytest.mark.parametrize("name", ["unsup_bert", "unsup_bert.py", "configs/unsup_bert", "configs/unsup_bert.py"])
def test_a_recipe_is_found_from_any_folder_and_a_local_file_wins(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_recipe(name) == FOLDER / "unsup_bert.py"
    assert (
        find_recipe(name.replace("unsup_bert", "ablations/simcse_table3")) == FOLDER / "ablations" / "simcse_table3.py"
    )
    for argv in ([f"--config={name}:large"], ["--config", f"{name}:large"]):
        config, _ = parse([*argv, "--config.seed=3"], needs_workdir=False)
        assert (config.model.init_from, config.seed) == ("bert-large-uncased", 3)
    local = tmp_path / (name.removesuffix(".py") + ".py")
    local.parent.mkdir(exist_ok=True)
    local.write_text("")
    assert find_recipe(name).resolve() == local


def test_the_name_of_a_recipe_is_shown_by_the_first_process(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    recipe = ["--config=configs/unsup_bert.py:large"]
    parse(recipe, needs_workdir=False)
    assert capsys.readouterr().err == "recipe: unsup_bert:large\n"
    parse([*recipe, "--config.parallel.process_id=1"], needs_workdir=False)
    (tmp_path / "unsup_bert.py").write_text("from simcse_jax.configs.unsup_bert import get_config\n")
    parse(["--config=unsup_bert"], needs_workdir=False)
    assert capsys.readouterr().err == ""


def test_an_unknown_name_has_the_nearest_recipe_or_all_and_a_copy_of_the_package_may_have_none(tmp_path, monkeypatch):
    with pytest.raises(UserError) as caught:
        find_recipe("unsup_brt")
    assert str(caught.value).endswith("no such config file or recipe; the nearest one is unsup_bert")
    with pytest.raises(UserError) as caught:
        find_recipe("none.py")
    for part in ("--config none.py: ", "; there are ", *(name for name in recipe_names() if "/" not in name)):
        assert part in str(caught.value)
    monkeypatch.setattr(recipes, "FOLDER", tmp_path)
    with pytest.raises(UserError, match=r"^--config unsup_brt: .*recipe$"):
        find_recipe("unsup_brt")
    with pytest.raises(UserError, match=r"--config .*unsup_bert, sup_bert"):  # it is given once
        parse(["--config", "unsup_bert", "--config=sup_bert"], needs_workdir=False)


@pytest.mark.parametrize("script", [False, True], ids=["as python -m", "as a console script"])
def test_config_files_import_each_other_and_the_recipes(script, tmp_path):
    for name, text in CHAIN.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "script.py").write_text(SHOW)  # its folder, not the current one, is on the path
    command = [sys.executable, "bin/script.py"] if script else [sys.executable, "-c", SHOW]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.stdout == "bert-large-uncased 8\n", done.stderr


def test_recipes_are_listed_and_a_variant_is_chosen_by_its_name_the_default_one_first(tmp_path):
    assert choose_variant("large", {"base": 1, "large": 2}) == 2
    with pytest.raises(UserError, match=r"^no variant 'huge' of this config; it has base, large$") as caught:
        choose_variant("huge", {"base": 1, "large": 2})
    assert isinstance(caught.value, NoSuchVariant) and caught.value.variants == ("base", "large")

    def variants(code):
        (tmp_path / "x.py").write_text(f"from simcse_jax.config import choose_variant\n{code}\n")
        return read_variants(load_file(tmp_path / "x.py"))

    choosing = "    return choose_variant(size, {'base': 1, 'large': 2})"
    assert variants(f"def get_config(size='large'):\n{choosing}") == ("large", "base")
    assert variants("def get_config():\n    return 1") == ()
    assert variants("def get_config(rate='0.1'):\n    return rate") == ()  # any text is one
    found = read_variants(load_file(FOLDER / "sup_bert.py"))
    assert found == ("base", "large", "neutral", "mlm", "large_mlm", "joint")
    # They are listed, and a broken one says why.
    (tmp_path / "x.py").write_text('"""One line.\n\nAnother.\n"""\n\ndef get_config():\n    pass\n')
    (tmp_path / "a.py").write_text("1 / 0\n")
    abouts = {"a.py": "cannot be loaded: division by zero", "x.py": "One line."}
    assert list_recipes(tmp_path) == [ListedRecipe(tmp_path / name, about) for name, about in abouts.items()]
    assert list_recipes(tmp_path / "none") == []
