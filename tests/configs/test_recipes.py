"""Every recipe and sweep of `configs/` parses, is valid and agrees with the paper; `golden/` has all of its values."""

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


ROWS = {
    "full_length": 5, "simcse_figure2": 4, "simcse_table1": 11, "simcse_table2": 8, "simcse_table3": 8,
    "simcse_table4": 17, "simcse_table5": 40, "simcse_table6": 5, "simcse_table7": 5, "simcse_tableB2": 8,
    "simcse_tableB3": 14, "simcse_tableD1": 6, "simcse_tableC1": 7, "simcse_tableD2": 4, "simcse_tableE1": 35,
    "simcse_grid": 12, "simcse_pp_table1": 7, "simcse_pp_table2": 9, "simcse_pp_table3": 18, "simcse_pp_table4": 13,
    "simcse_pp_table5": 64, "simcse_pp_table6": 2, "isotropy_temperature": 3, "isotropy_temperature_wide": 5,
    "isotropy_batch_size": 3, "isotropy_pooling": 3, "systems": 72, "ct_parts": 16, "diffcse_readings": 9,
    "rank_bottleneck": 20,
}  # fmt: skip


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


def test_every_table_has_its_file_with_all_rows():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(ROWS)
    assert {name: len(read(f"{name}.py")[1]) for name in ROWS} == ROWS


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


WHITENING, SBERT_WHITENING = [66.28, 64.26], [77.00, 72.64]
GRID = [83.77, 68.55, 81.61, 79.11, 79.99, 71.49, 82.60, 83.25, 82.36, 80.79, 77.79, 82.16, 82.43, 83.56, 83.37, 81.76]
PRINTED = {  # copied independently from the papers, in the order of the tables
    ("simcse_table1.py", "stsb_dev"): [82.5, 77.8, 71.4, 63.6, 75.9, 72.2, 68.2, 75.9, 74.2, 77.4, 62.2],
    ("simcse_table2.py", "stsb_dev"): [67.1, 67.4, 75.9, 82.5, 68.9, 68.8, 73.1, 80.7],
    ("simcse_table3.py", "stsb_dev"): [71.1, 72.6, 81.1, 82.5, 81.4, 80.5, 71.0, 43.6],
    ("simcse_figure2.py", "stsb_dev"): [82.5, 71.1, 43.6, 75.9],  # of Tables 3 and 1
    ("simcse_table4.py", "stsb_dev"): [82.5, 81.8, 81.5, 81.4, 79.7, 78.7, 84.1, 84.9, 82.6, 82.9, 77.5, 77.6, 81.7,
        81.9, 86.2, 85.0, 84.2],
    ("simcse_table6.py:unsup", "stsb_dev"): [81.7, 82.5, 80.9, 81.2, 81.2],
    ("simcse_table6.py:sup", "stsb_dev"): [86.2, 85.8, 86.2, 86.1, 86.1],
    ("simcse_table7.py", "stsb_dev"): [84.9, 86.1, 86.2, 86.2, 85.3],
    ("simcse_tableD1.py", "stsb_dev"): [85.9, 84.9, 85.4, 86.2, 82.0, 64.0],
    ("simcse_tableC1.py", "sts_avg"): [56.70, 66.55, 66.31, *2 * WHITENING],
    ("simcse_tableC1.py", "STS12"): [39.70, 58.40, 53.15, *2 * [57.83, 42.88]],
    ("simcse_tableC1.py:sbert", "sts_avg"): [74.89, 76.60, 75.48, *2 * SBERT_WHITENING],
    ("simcse_tableC1.py:sbert", "SICKRelatedness"): [72.91, 76.21, 73.82, *2 * [76.91, 72.54]],
    ("simcse_tableD2.py", "stsb_dev"): [86.2, 85.7, 85.7, 85.1],
    ("simcse_tableD2.py", "transfer_dev_avg"): [85.8, 86.1, 86.2, 85.8],
    ("simcse_pp_table1.py", "sts_avg"): [76.25, 75.25, 75.25, 65.55, 74.53, 74.53, 77.06],
    ("simcse_pp_table2.py", "sts_avg"): [76.25, *2 * [64.05, 71.37, 73.56, 76.08]],
    ("simcse_pp_table3.py", "sts_avg"): [61.32, 61.32, 56.70, 66.55, 66.28, 66.28, 66.58, *3 * [72.05], 72.74, 74.19,
        74.19, 76.25, 76.25, 78.05, 77.13, 77.40],
    ("simcse_pp_table3.py:large", "sts_avg"): [76.45, 78.41, 78.41, 79.30],
    ("simcse_pp_table3.py:sbert_base", "sts_avg"): [74.89, 77.33, 79.25, 77.33, 79.25],
    ("simcse_pp_table3.py:sbert_large", "sts_avg"): [76.55, 80.03, 80.63],
    ("simcse_pp_table4.py", "sts_avg"): [56.70, 61.33, 67.07, 66.55, 66.28, 66.28, 69.03, 76.25, 69.93, 72.24, 78.49,
        77.25, 78.69],
    ("simcse_pp_table5.py", "stsb_dev"): 4 * GRID,
    ("simcse_pp_table6.py", "training_minutes"): [60 + 50, 60 + 59],
}  # fmt: skip


def paper(name, metric):
    return {variant.name: variant.paper.get(metric) for variant, _ in read(name)[1]}


def test_the_papers_values():
    assert {key: list(paper(*key).values()) for key in PRINTED} == PRINTED
    unsup, sup = paper("simcse_tableE1.py", "transfer_avg"), paper("simcse_tableE1.py", "MRPC")
    others = ("average of BERT-base", "CLS of BERT-base", "IS-BERT-base")
    assert [unsup[name] for name in others] == [84.94, 84.66, 85.83]
    sizes = ("BERT-base", "RoBERTa-base", "RoBERTa-large")
    rows = [f"SimCSE-{size}{mlm}" for size in sizes for mlm in ("", " with MLM")]
    assert [unsup[f"unsup. {row}"] for row in rows] == [85.81, 86.64, 84.84, 86.90, 86.11, 87.57]
    assert [sup[f"sup. {row}"] for row in rows] == [73.51, 76.12, 75.65, 76.52, 76.64, 77.74]


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
    recipes = {path.stem for path in CONFIGS.glob("*.py")} - {"tune"}
    assert len(rows) == 20 and {name.partition(":")[0] for name in there} == recipes
    for name in there:
        file, colon, variant = name.partition(":")
        assert recipe(f"{file}.py{colon}{variant}")
