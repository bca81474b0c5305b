"""Every recipe and every sweep of `configs/`: it parses and is valid. Their values are in `golden/`, rows included."""

import functools
import re

import pytest
from support import ROOT
from support.golden import CONFIGS

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import flatten
from simcse_jax.config.flags import parse
from simcse_jax.config.recipes import list_recipes
from simcse_jax.errors import UserError
from simcse_jax.training.sweeps.metrics import METRICS
from simcse_jax.training.sweeps.variants import load_variants, read_sweep

FOLDER = CONFIGS / "ablations"


@functools.cache
def named(folder):
    """The files of a folder and their variants: `diffcse.py`, `diffcse.py:roberta`."""
    recipes = list_recipes(folder)
    return [f"{one.file.name}{end}" for one in recipes for end in ("", *(f":{variant}" for variant in one.variants))]


@functools.cache
def read(name):
    path = str(FOLDER / name)
    config, _ = parse([f"--config={path}", "--workdir=w"])
    return config, read_sweep(config, load_variants(path))


@functools.cache
def recipe(name):
    config, _ = parse([f"--config={CONFIGS / name}", "--workdir=w"])
    return flatten(config)


def test_sweeps_are_valid_and_say_which_table_they_are():
    for name in named(FOLDER):
        config, runs = read(name)
        rows = [variant.name for variant, _ in runs]
        assert config.sweep.baseline in rows and len(set(rows)) == len(rows), name
        flat = [flatten(resolved) for variant, resolved in runs if not variant.quoted]
        assert len({repr(fields) for fields in flat}) == len(flat), f"{name}: two rows are the same run"
        for variant, _ in runs:
            assert set(variant.paper) <= set(config.sweep.metrics), name
            assert (variant.baseline or config.sweep.baseline) in rows, name
        assert config.seed == 42 and tuple(config.sweep.seeds) == ("42", "43", "44"), name
        first = re.match(r'"""(.*)', (FOLDER / name.partition(":")[0]).read_text())[1]
        place = config.sweep.source.replace("On Isotropy and Learning Dynamics", "The isotropy paper")
        assert first.startswith(place + ":"), name


def test_recipes_are_valid():
    for name in named(CONFIGS):
        config, _ = parse([f"--config={CONFIGS / name}", "--workdir=w"])
        if name == "tune.py":
            config.model.init_from, config.data.train = "a-model", "a_file.csv"  # which the user names
        validate(config)
        assert "sweep" not in config, name


def test_unknown_variants_of_sweeps_are_reported():
    for path in {name.partition(":")[0] for name in named(FOLDER) if ":" in name}:
        for read_it in (lambda name: parse([f"--config={name}", "--workdir=w"]), load_variants):
            with pytest.raises(UserError, match="no variant 'nonsense'"):
                read_it(f"{FOLDER / path}:nonsense")


# SimCSE, Table A.1, and section 6.3 for the head. Other recipes' numbers are in their golden texts.
HYPER_PARAMETERS = {
    "unsup_bert.py": ("bert-base-uncased", 64, 3e-5, 1, "train"),
    "unsup_bert.py:large": ("bert-large-uncased", 64, 1e-5, 1, "train"),
    "unsup_roberta.py": ("roberta-base", 512, 1e-5, 1, "train"),
    "unsup_roberta.py:large": ("roberta-large", 512, 3e-5, 1, "train"),
    "sup_bert.py": ("bert-base-uncased", 512, 5e-5, 3, "always"),
    "sup_bert.py:large": ("bert-large-uncased", 512, 1e-5, 3, "always"),
    "sup_roberta.py": ("roberta-base", 512, 5e-5, 3, "always"),
    "sup_roberta.py:large": ("roberta-large", 512, 1e-5, 3, "always"),
}


def test_recipes_have_the_paper_s_hyper_parameters():
    names = ("model.init_from", "train.batch_size", "train.learning_rate", "train.epochs", "model.mlp")
    for name, values in HYPER_PARAMETERS.items():
        own = recipe(name)
        assert tuple(own[field] for field in names) == values, name
        assert own["objective.info_nce.temperature"] == 0.05
        assert (own["data.max_length"], own["eval.every"]) == (32, 250)


# Averages that are printed in a paper and are not those of its columns, with the columns' own.
SLIPS = {
    ("SBERT-base", "sts_avg", 74.89): 74.86,  # SimCSE Tables 5 and B.2, from Reimers and Gurevych
    ("none", "sts_avg", 74.89): 74.86,  # the same in C.1's sweep, with Table 5's numbers
    ("SBERT", "sts_avg", 74.89): 74.86,  # and in SimCSE++, Table 3
    ("SBERT-base + flow", "sts_wmean", 77.42): 77.43,  # Table B.3, from Li et al., on the target
    ("average of BERT-base", "transfer_avg", 84.94): 84.95,  # Table E.1, from Reimers and Gurevych
    ("unsup. SimCSE-RoBERTa-base", "transfer_avg", 86.90): 86.88,  # Table E.1, with MLM
}


def averages_of(variant):
    """A row's averages in the paper: name, printed, and that of the row's tasks if it has all of them."""
    for name, metric in METRICS.items():
        if metric.parts and name in variant.paper and variant.paper.keys() >= set(metric.parts):
            yield name, variant.paper[name], sum(variant.paper[part] for part in metric.parts) / len(metric.parts)


def test_the_printed_averages_are_those_of_their_columns():
    """A value with a wrong digit would not be. All are rounded to 0.01, so an average may be off by as much."""
    rows = [variant for name in named(FOLDER) for variant, _ in read(name)[1]]
    found = [(variant.name, *average) for variant in rows for average in averages_of(variant)]
    assert len(found) >= 90
    off = {
        (re.sub(r" (\(|with MLM).*", "", row), name, printed): round(mean, 2)
        for row, name, printed, mean in found
        if abs(printed - mean) > 0.01 + 1e-9
    }
    assert off == SLIPS


def test_the_map_of_the_code_says_what_each_recipe_is_composed_of():
    text = (ROOT / "docs" / "background" / "architecture.md").read_text(encoding="utf-8")
    table = re.search(r"## What each system is composed of\n.*?\n## ", text, re.DOTALL)[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("|")][2:]
    there = [name for cell in rows for name in re.findall(r"`([\w:]+)`", cell)]
    recipes = {path.stem for path in CONFIGS.glob("*.py")} - {"quickstart", "tune"}
    assert len(rows) == 19 and {name.partition(":")[0] for name in there} == recipes
    for name in there:
        file, colon, variant = name.partition(":")
        assert recipe(f"{file}.py{colon}{variant}")
