"""Every recipe and every sweep of `configs/`: it parses, is valid, and agrees with the paper."""

import functools
import itertools
import re

import pytest
from support import ROOT
from support.golden import CONFIGS

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import flatten, trains
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
def read(name, *args):
    path = str(FOLDER / name)
    config, _ = parse([f"--config={path}", "--workdir=w", *args])
    return config, read_sweep(config, load_variants(path))


def resolved(name, *args):
    return {variant.name: config for variant, config in read(name, *args)[1]}


@functools.cache
def recipe(name):
    config, _ = parse([f"--config={CONFIGS / name}", "--workdir=w"])
    return flatten(config)


def without(fields, *names):
    return {name: value for name, value in fields.items() if not name.startswith(names)}


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
    rows = [f"SimCSE-{size}{mlm}" for size in SIZES for mlm in ("", " with MLM")]
    assert [unsup[f"unsup. {row}"] for row in rows] == [85.81, 86.64, 84.84, 86.90, 86.11, 87.57]
    assert [sup[f"sup. {row}"] for row in rows] == [73.51, 76.12, 75.65, 76.52, 76.64, 77.74]


SIZES = {"BERT-base": ("bert", ""), "RoBERTa-base": ("roberta", ""), "RoBERTa-large": ("roberta", "large")}

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


def test_rows_of_published_models_and_of_glove_train_nothing():
    """Those of SimCSE's authors: the unsupervised ones have no head, the supervised ones keep it."""
    for name in ("simcse_table5.py", "simcse_tableB2.py", "simcse_tableB3.py", "simcse_tableE1.py"):
        rows = {row: one for row, one in resolved(name).items() if "(published" in row}
        assert all("/" in one.model.init_from and not trains(one) for one in rows.values())
        for row, one in rows.items():
            if "SimCSE" in row:
                kind, size = row.removesuffix(" (published)").split(". SimCSE-")
                assert (one.model.pooler, one.model.mlp) == ("cls", "none" if kind == "unsup" else "always")
                model = {"BERT-base": "bert-base-uncased"}.get(size, size.lower())
                assert one.model.init_from == f"princeton-nlp/{kind}-simcse-{model}"
    for name in ("simcse_table5.py", "simcse_tableE1.py", "simcse_pp_table3.py"):
        rows = {row: one for row, one in resolved(name).items() if one.model.init_from.startswith("glove:")}
        (one,) = rows.values()
        assert list(rows) == ["GloVe (avg.; glove.6B.300d)"]
        assert not trains(one) and (one.model.pooler, one.model.mlp) == ("avg", "none")


def test_the_paper_s_first_last_average_is_of_static_words():
    runs = resolved("simcse_table5.py")
    poolers = {row: config.model.pooler for row, config in runs.items() if not row.startswith(("unsup", "sup"))}
    assert {row for row, pooler in poolers.items() if pooler == "avg_static_last"} == {
        "BERT-base (first-last avg.)", "RoBERTa-base (first-last avg.)", "BERT-base-whitening",
        "RoBERTa-base-whitening", "SBERT-base-whitening (published)", "SRoBERTa-base-whitening (published)",
    }  # fmt: skip
    assert {row for row, pooler in poolers.items() if pooler == "avg_first_last"} == {
        "BERT-base-flow", "SBERT-base-flow (published)", "BERT-base-whitening (layer 1)",
        "RoBERTa-base-whitening (layer 1)", "SBERT-base-whitening (published; layer 1)",
        "SRoBERTa-base-whitening (published; layer 1)",
    }  # fmt: skip
    others = {config.model.pooler for config in resolved("simcse_tableB3.py").values()}
    assert others == {"avg_first_last", "cls"}  # Li et al. and Su et al., and SimCSE


@functools.cache
def changes(name):
    """The fields of each row that differ from the baseline's config: row → field → value."""
    config, runs = read(name)
    flat = {variant.name: flatten(one) for variant, one in runs}
    return {
        row: {field: value for field, value in fields.items() if value != flat[config.sweep.baseline][field]}
        for row, fields in flat.items()
    }


FIXED, NOTHING = {"views.positive": "shared"}, {"model.dropout": 0.0, "views.positive": "off"}
NOISE = {"objective.info_nce.weight": 0.0, "objective.off_dropout.weight": 1.0}
NOISY = NOISE | {"views.positive": "noisy"}
RELEASED = {"reading": "released", "weight": 0.1, "off_diagonal_weight": 0.012, "artificial": 704}
SUBJECTS = {  # whole tables, then rows of others
    "simcse_table3.py": {"0.0": NOTHING, "0.1": {}, "fixed 0.1": FIXED}
    | {f"{rate}": {"model.dropout": rate} for rate in (0.01, 0.05, 0.15, 0.2, 0.5)},
    "simcse_figure2.py": {"unsupervised SimCSE": {}, "no dropout": NOTHING, "fixed 0.1": FIXED}
    | {"delete one word": {"data.augment.name": "delete_one"}},
    "simcse_table1.py": {
        "delete one word without dropout": {"data.augment.name": "delete_one", "model.dropout": 0.0},
        "crop 30%": {"data.augment.name": "crop", "data.augment.percent": 30.0},
        "mlm 15%": {"data.augment.name": "mlm", "data.augment.percent": 15.0}},
    "simcse_table2.py": {"next 3 sentences with two encoders": {
        "data.train": "data/wiki_documents.txt", "data.positives": "next_3_sentences", "model.dual_encoder": True}},
    "simcse_table4.py": {"neutral sample": {
        "data.train": "data/nli_pairs.csv", "data.positives": "neutral", "data.subsample": 134_000}},
    "simcse_table7.py": {"alpha 2.0": {"objective.info_nce.hard_negative_weight": 2.0}},
    "simcse_tableD1.py": {
        "dot product": {"objective.info_nce.similarity": "dot", "objective.info_nce.temperature": 1.0}},
    "simcse_grid.py:sup": {"batch 64 at 1e-05": {"train.batch_size": 64, "train.learning_rate": 1e-5}},
    "simcse_pp_table1.py": {
        "negatives - noise": NOISE | {"views.negative": "mean"}, "positives + noise of variance 0.1": NOISY,
        "positives + noise of deviation 0.1": NOISY | {"views.noise": 0.01}},
    "simcse_pp_table2.py": {
        "released 704 artificial": {f"objective.barlow_twins.{field}": value for field, value in RELEASED.items()}},
    "simcse_pp_table3.py:sbert_base": {"SimCSE at 1e-5": {"train.learning_rate": 1e-5}},
    "simcse_pp_table3.py": {"dimension-wise": {"objective.dimension_wise.weight": 0.1}},
    "simcse_pp_table5.py": {
        "m-released dcl-paper m 0.5": {"objective.off_dropout.reading": "released", "objective.off_dropout.m": 0.5}},
    "simcse_pp_table5.py:m_paper_dcl_released": {
        "m-paper dcl-released tau 1": {"objective.dimension_wise.temperature": 1.0}},
    "simcse_pp_table6.py": {"SimCSE++": NOISE | {"objective.dimension_wise.weight": 0.1}},
    "isotropy_batch_size.py": {"256": {"train.batch_size": 256}},
}  # fmt: skip


def test_the_rows_differ_from_the_baseline_in_their_subject_alone():
    for name, rows in SUBJECTS.items():
        assert {row: changes(name)[row] for row in rows} == rows, name
    for name in ("simcse_table3.py", "simcse_figure2.py"):
        assert changes(name) == SUBJECTS[name]
    assert changes("simcse_table7.py")["with neutral"]["data.columns.neutral"] == "neutral"
    assert resolved("simcse_pp_table2.py")["paper 0 artificial"].objective.barlow_twins.off_diagonal_weight == 0.005


# Fields that a sweep's base sets for its other rows, and that its baseline ignores.
UNUSED = ("objective.dimension_wise", "objective.off_dropout", "data.augment", "views.negative", "eval.transfer")
TABLES = ("simcse_table5.py", "simcse_tableE1.py")
SAME = {
    "unsup_bert.py": {
        "simcse_table1.py": "none", "simcse_table2.py": "SimCSE", "simcse_table3.py": "0.1",
        "simcse_table4.py": "unsupervised", "simcse_table6.py": "cls with head in training",
        "simcse_grid.py": "batch 64 at 3e-05", "simcse_tableB3.py": "unsup. SimCSE-BERT-base"},
    "sup_bert.py": {
        "simcse_table4.py": "entailment + hard negatives", "simcse_table6.py:sup": "cls with head",
        "simcse_tableD1.py": "0.05", "simcse_tableD2.py": "without MLM",
        "simcse_grid.py:sup": "batch 512 at 5e-05", "simcse_tableB3.py": "sup. SimCSE-BERT-base"},
    "sup_bert.py:mlm": {"simcse_tableD2.py": "lambda 0.1"},
    "sup_bert.py:neutral": {"simcse_table7.py": "with neutral"},
}  # fmt: skip
OTHERS = {  # rows of other systems, which take all fields from their recipes
    "ct.py": {"simcse_table5.py": "CT-BERT-base", "simcse_pp_table3.py": "CT-BERT"},
    "ct.py:released": {"simcse_table5.py": "CT-BERT-base (released)", "simcse_pp_table3.py": "CT-BERT (released)"},
    "ct.py:sbert": {"simcse_table5.py": "CT-SBERT-base"},
    "declutr.py": {"simcse_table5.py": "DeCLUTR-RoBERTa-base"},
    "is_bert.py": {"simcse_pp_table3.py": "IS-BERT", **dict.fromkeys(TABLES, "IS-BERT-base")},
    "consert.py": {"simcse_pp_table3.py": "ConSERT"},
    "consert.py:large": {"simcse_pp_table3.py:large": "ConSERT"},
    "scd.py": {"simcse_pp_table3.py": "SCD-BERT"},
    "diffcse.py": {"simcse_pp_table4.py": "DiffCSE"},
    "diffcse.py:simcse_plus_plus": {"simcse_pp_table4.py": "DiffCSE + SimCSE++"},
    "sbert_nli.py": dict.fromkeys(TABLES, "SBERT-base"),
    "sbert_nli.py:roberta": dict.fromkeys(TABLES, "SRoBERTa-base"),
}
PLUS_PLUS = {
    "base": {"simcse_pp_table6.py": "SimCSE++", "simcse_pp_table5.py": "m-released dcl-paper centre"},
    "sbert_base_released": {"simcse_pp_table3.py:sbert_base": "SimCSE++ at 1e-5"},
}


def each_row(recipes):
    return [(table, row, name) for name, rows in recipes.items() for table, row in rows.items()]


def test_rows_are_the_recipes():
    same = each_row(SAME)
    for kind, (size, (encoder, variant)) in itertools.product(("unsup", "sup"), SIZES.items()):
        plain, mlm = f"{kind}_{encoder}.py{':' * bool(variant)}{variant}", f"{variant}_mlm".lstrip("_")
        same += [(table, f"{kind}. SimCSE-{size}", plain) for table in TABLES]
        same += [("simcse_tableE1.py", f"{kind}. SimCSE-{size} with MLM", f"{kind}_{encoder}.py:{mlm}")]
    for table, row, name in same:
        found, own = flatten(resolved(table)[row]), recipe(name)
        assert without(found, *UNUSED) == without(own, *UNUSED), (table, row)
        assert found["data.augment.name"] == own["data.augment.name"] == ""
    for table, row, name in each_row(OTHERS):
        found = flatten(resolved(table)[row])
        assert without(found, "eval.transfer") == without(recipe(name), "eval.transfer"), (table, row)
        assert found["eval.transfer"] == (table == "simcse_tableE1.py")
    reading = "objective.dimension_wise.reading"  # the sweeps run either
    sizes = ("base", "large", "sbert_base", "sbert_large")
    best = each_row(PLUS_PLUS) + [(f"simcse_pp_table3.py:{size}", "SimCSE++", size) for size in sizes]
    for table, row, name in best:
        found, own = flatten(resolved(table)[row]), recipe(f"simcse_plus_plus.py:{name}")
        assert without(found, reading) == without(own, reading), (table, row)


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


def test_pairs_outside_the_noise_study_have_the_usual_views():
    runs = resolved("simcse_pp_table1.py")
    views = {name: (config.views.positive, config.views.negative) for name, config in runs.items()}
    assert views["positives - noise"] == ("mean", "independent")
    assert views["negatives - noise"] == ("independent", "mean")
    assert {config.objective.off_dropout.m for config in runs.values()} == {1.0}
    assert {config.views.samples for config in runs.values()} == {10}
    assert {config.views.noise for name, config in runs.items() if "deviation" not in name} == {0.1}


def test_the_dimension_wise_loss_stands_alone_in_table_4():
    runs = resolved("simcse_pp_table4.py")
    for name in ("dimension-wise on wiki", "dimension-wise on NLI"):
        terms = {term: fields.weight for term, fields in runs[name].objective.items() if fields.weight}
        assert terms == {"dimension_wise": 1.0}
        assert runs[name].objective.dimension_wise.temperature == 0.05
        assert (runs[name].model.pooler, runs[name].model.mlp) == ("avg_static_last", "none")
    assert {name for name, one in runs.items() if not trains(one)} == {
        "none", "whitening on wiki", "flow on NLI", "whitening on NLI", "whitening on NLI (layer 1)",
        "DiffCSE (published)",
    }  # fmt: skip
    simcse = without(flatten(runs["SimCSE"]), "objective.dimension_wise", "eval.every")
    assert simcse == without(recipe("unsup_bert.py"), "objective.dimension_wise", "eval.every")


def test_post_processing_rows_change_nothing_else():
    def fit_on(config):
        return config.eval.postprocess, config.eval.postprocess_data

    nli = "data/nli_sentences.txt"
    flow, whitening = ({"eval.postprocess": method, "eval.postprocess_data": nli} for method in ("flow", "whitening"))
    layer_1 = {"model.pooler": "avg_first_last"}  # as in the code of both
    for name, own in (("simcse_tableC1.py", {}), ("simcse_tableC1.py:sbert", {"model.pooler": "avg_static_last"})):
        target = {"eval.postprocess_data": "target_all"}
        assert changes(name) == {
            "none": {},
            "flow (NLI)": flow | layer_1,
            "flow (target)": flow | layer_1 | target,
            "whitening (NLI)": whitening | own,
            "whitening (target)": whitening | own | target,
            "whitening (NLI) (layer 1)": whitening | layer_1,
            "whitening (target) (layer 1)": whitening | layer_1 | target,
        }
        assert not any(trains(config) for config in resolved(name).values())
    runs = resolved("simcse_pp_table4.py")
    assert fit_on(runs["whitening on wiki"]) == ("whitening", "data/wiki1m_for_simcse.txt")
    for row, method in (("SimCSE + flow", "flow"), ("SimCSE + whitening", "whitening")):
        assert fit_on(runs[row]) == (method, nli)
        same = [without(flatten(runs[name]), "eval.postprocess") for name in (row, "SimCSE")]
        assert same[0] == same[1]
    runs = resolved("simcse_tableE1.py")
    assert all(config.eval.transfer for config in runs.values())
    assert fit_on(runs["average of BERT-base + flow"]) == ("flow", nli)


def test_the_isotropy_paper_s_setup():
    """Its section 4.2: entailment pairs alone, one epoch, batches of 64; mean pooling unless that is varied."""
    for name in ("isotropy_temperature", "isotropy_temperature_wide", "isotropy_batch_size", "isotropy_pooling"):
        for variant, config in resolved(f"{name}.py").items():
            assert (config.data.train, config.data.positives) == ("data/nli_pairs.csv", "entailment")
            assert (config.train.epochs, config.model.mlp) == (1, "none")
            assert (config.model.init_from, config.model.num_layers) == ("microsoft/mpnet-base", 0)
            assert {config.analysis.every, config.checkpoint.keep_every, config.eval.every} == {200}
            assert config.train.batch_size == (int(variant) if name == "isotropy_batch_size" else 64)
            assert config.model.pooler == (variant if name == "isotropy_pooling" else "avg")
            temperature = float(variant) if "temperature" in name else 0.05
            assert config.objective.info_nce.temperature == temperature


def test_fields_of_the_command_line_reach_every_row():
    runs = resolved("simcse_table3.py", "--config.train.max_steps=31", "--config.model.init_from=package:x")
    assert {(config.train.max_steps, config.model.init_from) for config in runs.values()} == {(31, "package:x")}
    weight = "--config.objective.barlow_twins.weight=0.01"
    runs = resolved("simcse_pp_table2.py:paper", weight)
    weights = {name: one.objective.barlow_twins.weight for name, one in runs.items()}
    assert weights == dict.fromkeys(weights, 0.01) | {"SimCSE": 0.0}
