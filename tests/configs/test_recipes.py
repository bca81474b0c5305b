"""Every recipe and every sweep of `configs/`: it parses, is valid, and agrees with the paper."""

import math
import re

import pytest
from support import ROOT

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import flatten, trains
from simcse_jax.config.flags import parse
from simcse_jax.errors import UserError
from simcse_jax.training.sweeps.metrics import METRICS
from simcse_jax.training.sweeps.variants import load_variants, read_sweep

FOLDER = ROOT / "configs" / "ablations"
ARGUMENTS = {
    "simcse_table6": ("unsup", "sup"),
    "simcse_tableC1": ("bert", "sbert"),
    "simcse_grid": ("unsup", "sup"),
    "simcse_pp_table3": ("base", "large", "sbert_base", "sbert_large"),
    "simcse_pp_table2": ("both", "paper", "released"),
    "simcse_pp_table5": ("all", "m_paper_dcl_released", "m_released_dcl_paper"),
    "simcse_plus_plus": ("base", "large", "sbert_base", "sbert_base_released", "sbert_large"),
    "diffcse": ("sts", "transfer", "roberta", "roberta_transfer", "simcse_plus_plus"),
    "esimcse": ("base", "large", "roberta", "roberta_large"),
    "rank_cse": ("base", "listnet", "roberta"),
    "sncse": ("base", "large", "roberta", "roberta_large"),
    "prompt_bert": ("base", "roberta"),
    "prompt_eol": ("llama", "qwen2", "qwen3", "mistral", "gemma3", "unsupervised", "unsupervised_qwen3"),
    "sup_bert": ("base", "large", "neutral", "mlm", "large_mlm"),
    "sup_roberta": ("base", "large", "mlm", "large_mlm"),
    "unsup_bert": ("base", "large", "mlm", "large_mlm"),
    "unsup_roberta": ("base", "large", "mlm", "large_mlm"),
    "declutr": ("released", "short"),
    "consert": ("base", "large"),
    "ct": ("base", "released", "sbert"),
    "is_bert": ("released", "paper"),
    "sbert_nli": ("bert", "bert_large", "roberta", "roberta_large"),
    "graded": ("cosent", "angle", "cosine_mse"),
    "retrieval_qwen3": ("lora", "whole"),
}
ROWS = {
    "full_length": 5,
    "simcse_figure2": 4,
    "simcse_table1": 11,
    "simcse_table2": 8,
    "simcse_table3": 8,
    "simcse_table4": 17,
    "simcse_table5": 40,
    "simcse_table6": 5,
    "simcse_table7": 5,
    "simcse_tableB2": 8,
    "simcse_tableB3": 14,
    "simcse_tableD1": 6,
    "simcse_tableC1": 7,
    "simcse_tableD2": 4,
    "simcse_tableE1": 35,
    "simcse_grid": 12,
    "simcse_pp_table1": 7,
    "simcse_pp_table2": 9,
    "simcse_pp_table3": 18,
    "simcse_pp_table4": 13,
    "simcse_pp_table5": 64,
    "simcse_pp_table6": 2,
    "isotropy_temperature": 3,
    "isotropy_temperature_wide": 5,
    "isotropy_batch_size": 3,
    "isotropy_pooling": 3,
    "systems": 72,
    "ct_parts": 16,
    "diffcse_readings": 9,
    "rank_bottleneck": 20,
}


def with_arguments(path):
    return [str(path), *(f"{path}:{argument}" for argument in ARGUMENTS.get(path.stem, ()))]


SWEEPS = [name for path in sorted(FOLDER.glob("*.py")) for name in with_arguments(path)]
RECIPES = [name for path in sorted((ROOT / "configs").glob("*.py")) for name in with_arguments(path)]


def short(path):
    return path.rpartition("/")[2]


def read(name, *args):
    path = str(FOLDER / name)
    config, _ = parse([f"--config={path}", "--workdir=w", *args])
    return config, read_sweep(config, load_variants(path))


def resolved(name, *args):
    return {variant.name: config for variant, config in read(name, *args)[1]}


def test_every_table_has_its_file_with_all_rows():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(ROWS)
    assert {name: len(read(f"{name}.py")[1]) for name in ROWS} == ROWS


@pytest.mark.parametrize("path", SWEEPS, ids=short)
def test_sweeps_are_valid(path):
    config, runs = read(short(path))
    names = [variant.name for variant, _ in runs]
    assert config.sweep.baseline in names
    assert len(set(names)) == len(names)
    flat = [flatten(resolved) for variant, resolved in runs if not variant.quoted]
    assert len({repr(fields) for fields in flat}) == len(flat), "two rows are the same run"
    for variant, _ in runs:
        assert set(variant.paper) <= set(config.sweep.metrics)
        assert (variant.baseline or config.sweep.baseline) in names
    assert config.seed == 42
    assert tuple(config.sweep.seeds) == ("42", "43", "44")


@pytest.mark.parametrize("path", SWEEPS, ids=short)
def test_the_docstring_names_the_table(path):
    config, _ = read(short(path))
    text = (FOLDER / short(path).partition(":")[0]).read_text()
    first = re.match(r'"""(.*)', text)[1]
    place = config.sweep.source.replace("On Isotropy and Learning Dynamics", "The isotropy paper")
    assert first.startswith(place + ":")


@pytest.mark.parametrize("path", RECIPES, ids=short)
def test_recipes_are_valid(path):
    config, _ = parse([f"--config={path}", "--workdir=w"])
    if short(path) == "tune.py":
        config.model.init_from, config.data.train = "a-model", "a_file.csv"  # which the user names
    validate(config)
    assert "sweep" not in config


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name.startswith("simcse_") and "plus" not in name])
def test_unknown_arguments_are_reported(name):
    with pytest.raises(UserError, match="no variant 'nonsense'"):
        parse([f"--config={FOLDER / name}.py:nonsense", "--workdir=w"])
    with pytest.raises(UserError, match="no variant 'nonsense'"):
        load_variants(f"{FOLDER / name}.py:nonsense")


PAPER = {  # SimCSE, Table A.1, and section 6.3 for the head
    "unsup_bert": ("bert-base-uncased", 64, 3e-5, 1, "train"),
    "unsup_bert.py:large": ("bert-large-uncased", 64, 1e-5, 1, "train"),
    "unsup_roberta": ("roberta-base", 512, 1e-5, 1, "train"),
    "unsup_roberta.py:large": ("roberta-large", 512, 3e-5, 1, "train"),
    "sup_bert": ("bert-base-uncased", 512, 5e-5, 3, "always"),
    "sup_bert.py:large": ("bert-large-uncased", 512, 1e-5, 3, "always"),
    "sup_roberta": ("roberta-base", 512, 5e-5, 3, "always"),
    "sup_roberta.py:large": ("roberta-large", 512, 1e-5, 3, "always"),
}


@pytest.mark.parametrize("name", PAPER)
def test_recipes_have_the_paper_s_hyper_parameters(name):
    path = f"{ROOT}/configs/{name}" + ("" if ".py" in name else ".py")
    config, _ = parse([f"--config={path}", "--workdir=w"])
    validate(config)
    train = config.train
    assert (config.model.init_from, train.batch_size, train.learning_rate, train.epochs, config.model.mlp) == PAPER[
        name
    ]
    assert (config.objective.info_nce.temperature, config.data.max_length, config.eval.every) == (0.05, 32, 250)


def paper(name, metric="stsb_dev"):
    return {variant.name: variant.paper.get(metric) for variant, _ in read(name)[1]}


SIZES = ("BERT-base", "RoBERTa-base", "RoBERTa-large")


def test_the_papers_values():
    """Copied independently from the papers, in the order of the tables."""
    assert list(paper("simcse_table1.py").values()) == [
        82.5, 77.8, 71.4, 63.6, 75.9, 72.2, 68.2, 75.9, 74.2, 77.4, 62.2
    ]  # fmt: skip
    assert list(paper("simcse_table2.py").values()) == [67.1, 67.4, 75.9, 82.5, 68.9, 68.8, 73.1, 80.7]
    assert list(paper("simcse_table3.py").values()) == [71.1, 72.6, 81.1, 82.5, 81.4, 80.5, 71.0, 43.6]
    assert list(paper("simcse_figure2.py").values()) == [82.5, 71.1, 43.6, 75.9]  # of Tables 3 and 1
    assert list(paper("simcse_table4.py").values()) == [
        82.5, 81.8, 81.5, 81.4, 79.7, 78.7, 84.1, 84.9, 82.6, 82.9, 77.5, 77.6, 81.7, 81.9, 86.2, 85.0, 84.2
    ]  # fmt: skip
    assert list(paper("simcse_table6.py:unsup").values()) == [81.7, 82.5, 80.9, 81.2, 81.2]
    assert list(paper("simcse_table6.py:sup").values()) == [86.2, 85.8, 86.2, 86.1, 86.1]
    assert list(paper("simcse_table7.py").values()) == [84.9, 86.1, 86.2, 86.2, 85.3]
    assert list(paper("simcse_tableD1.py").values()) == [85.9, 84.9, 85.4, 86.2, 82.0, 64.0]
    whitening = [66.28, 64.26]
    assert list(paper("simcse_tableC1.py", "sts_avg").values()) == [56.70, 66.55, 66.31, *whitening, *whitening]
    assert list(paper("simcse_tableC1.py", "STS12").values()) == [39.70, 58.40, 53.15, *2 * [57.83, 42.88]]
    whitening = [77.00, 72.64]
    assert list(paper("simcse_tableC1.py:sbert", "sts_avg").values()) == [74.89, 76.60, 75.48, *whitening, *whitening]
    assert list(paper("simcse_tableC1.py:sbert", "SICKRelatedness").values()) == [
        72.91, 76.21, 73.82, *2 * [76.91, 72.54]
    ]  # fmt: skip
    assert list(paper("simcse_tableD2.py").values()) == [86.2, 85.7, 85.7, 85.1]
    assert list(paper("simcse_tableD2.py", "transfer_dev_avg").values()) == [85.8, 86.1, 86.2, 85.8]
    unsup, sup = paper("simcse_tableE1.py", "transfer_avg"), paper("simcse_tableE1.py", "MRPC")
    assert [unsup[name] for name in ("average of BERT-base", "CLS of BERT-base", "IS-BERT-base")] == [
        84.94,
        84.66,
        85.83,
    ]
    assert [unsup[f"unsup. SimCSE-{size}{mlm}"] for size in SIZES for mlm in ("", " with MLM")] == [
        85.81, 86.64, 84.84, 86.90, 86.11, 87.57
    ]  # fmt: skip
    assert [sup[f"sup. SimCSE-{size}{mlm}"] for size in SIZES for mlm in ("", " with MLM")] == [
        73.51, 76.12, 75.65, 76.52, 76.64, 77.74
    ]  # fmt: skip
    assert list(paper("simcse_pp_table1.py", "sts_avg").values()) == [
        76.25, 75.25, 75.25, 65.55, 74.53, 74.53, 77.06
    ]  # fmt: skip
    assert list(paper("simcse_pp_table2.py", "sts_avg").values()) == [76.25, *2 * [64.05, 71.37, 73.56, 76.08]]
    assert list(paper("simcse_pp_table3.py", "sts_avg").values()) == [
        61.32, 61.32, 56.70, 66.55, 66.28, 66.28, 66.58, *3 * [72.05], 72.74, 74.19, 74.19, 76.25,
        76.25, 78.05, 77.13, 77.40
    ]  # fmt: skip
    assert list(paper("simcse_pp_table3.py:large", "sts_avg").values()) == [76.45, 78.41, 78.41, 79.30]
    assert list(paper("simcse_pp_table3.py:sbert_base", "sts_avg").values()) == [74.89, 77.33, 79.25, 77.33, 79.25]
    assert list(paper("simcse_pp_table3.py:sbert_large", "sts_avg").values()) == [76.55, 80.03, 80.63]
    assert list(paper("simcse_pp_table4.py", "sts_avg").values()) == [
        56.70, 61.33, 67.07, 66.55, 66.28, 66.28, 69.03, 76.25, 69.93, 72.24, 78.49, 77.25, 78.69
    ]  # fmt: skip
    grid = [83.77, 68.55, 81.61, 79.11, 79.99, 71.49, 82.60, 83.25, 82.36, 80.79, 77.79, 82.16, 82.43, 83.56, 83.37]
    assert list(paper("simcse_pp_table5.py").values()) == 4 * [*grid, 81.76]
    assert list(paper("simcse_pp_table6.py", "training_minutes").values()) == [60 + 50, 60 + 59]


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
    rows = [variant for path in SWEEPS for variant, _ in read(short(path))[1]]
    found = [(variant.name, *average) for variant in rows for average in averages_of(variant)]
    assert len(found) >= 90
    off = {
        (re.sub(r" (\(|with MLM).*", "", row), name, printed): round(mean, 2)
        for row, name, printed, mean in found
        if abs(printed - mean) > 0.01 + 1e-9
    }
    assert off == SLIPS


def test_rows_of_published_models_train_nothing():
    """Those of SimCSE's authors: the unsupervised ones have no head, the supervised ones keep it."""
    for name in ("simcse_table5.py", "simcse_tableB2.py", "simcse_tableB3.py", "simcse_tableE1.py"):
        runs = resolved(name)
        rows = {row: config for row, config in runs.items() if "(published" in row}
        assert all("/" in one.model.init_from and not trains(one) for one in rows.values())
        heads = {row: (one.model.pooler, one.model.mlp) for row, one in rows.items() if "SimCSE" in row}
        expected = {row: ("cls", "none" if row.startswith("unsup") else "always") for row in heads}
        assert heads == expected
        for row, one in rows.items():
            if "SimCSE" in row:
                kind, size = row.removesuffix(" (published)").split(". SimCSE-")
                model = {"BERT-base": "bert-base-uncased"}.get(size, size.lower())
                assert one.model.init_from == f"princeton-nlp/{kind}-simcse-{model}"


def test_glove_is_loaded_and_not_trained():
    for name in ("simcse_table5.py", "simcse_tableE1.py", "simcse_pp_table3.py"):
        rows = {row: one for row, one in resolved(name).items() if one.model.init_from.startswith("glove:")}
        assert list(rows) == ["GloVe (avg.; glove.6B.300d)"]
        (one,) = rows.values()
        assert not trains(one) and (one.model.pooler, one.model.mlp) == ("avg", "none")


def test_the_paper_s_first_last_average_is_of_static_words():
    runs = resolved("simcse_table5.py")
    poolers = {row: config.model.pooler for row, config in runs.items() if not row.startswith(("unsup", "sup"))}
    assert {row for row, pooler in poolers.items() if pooler == "avg_static_last"} == {
        "BERT-base (first-last avg.)", "RoBERTa-base (first-last avg.)", "BERT-base-whitening",
        "RoBERTa-base-whitening",
        "SBERT-base-whitening (published)", "SRoBERTa-base-whitening (published)",
    }  # fmt: skip
    assert {row for row, pooler in poolers.items() if pooler == "avg_first_last"} == {
        "BERT-base-flow", "SBERT-base-flow (published)", "BERT-base-whitening (layer 1)",
        "RoBERTa-base-whitening (layer 1)", "SBERT-base-whitening (published; layer 1)",
        "SRoBERTa-base-whitening (published; layer 1)",
    }  # fmt: skip
    others = {config.model.pooler for config in resolved("simcse_tableB3.py").values()}
    assert others == {"avg_first_last", "cls"}  # Li et al. and Su et al., and SimCSE


def changes(name):
    """The fields of each row that differ from the baseline's config: row → field → value."""
    config, runs = read(name)
    flat = {variant.name: flatten(one) for variant, one in runs}
    return {
        row: {field: value for field, value in fields.items() if value != flat[config.sweep.baseline][field]}
        for row, fields in flat.items()
    }


def test_the_rows_differ_from_the_baseline_in_their_subject_alone():
    assert changes("simcse_table3.py") == {
        "0.0": {"model.dropout": 0.0, "views.positive": "off"},
        **{f"{rate}": {"model.dropout": rate} for rate in (0.01, 0.05, 0.15, 0.2, 0.5)},
        "0.1": {},
        "fixed 0.1": {"views.positive": "shared"},
    }
    assert changes("simcse_figure2.py") == {
        "unsupervised SimCSE": {},
        "no dropout": {"model.dropout": 0.0, "views.positive": "off"},
        "fixed 0.1": {"views.positive": "shared"},
        "delete one word": {"data.augment.name": "delete_one"},
    }
    one_word = changes("simcse_table1.py")["delete one word without dropout"]
    assert one_word == {"data.augment.name": "delete_one", "model.dropout": 0.0}
    assert changes("simcse_table1.py")["crop 30%"] == {"data.augment.name": "crop", "data.augment.percent": 30.0}
    assert changes("simcse_table1.py")["mlm 15%"] == {"data.augment.name": "mlm", "data.augment.percent": 15.0}
    assert changes("simcse_table2.py")["next 3 sentences with two encoders"] == {
        "data.train": "data/wiki_documents.txt",
        "data.positives": "next_3_sentences",
        "model.dual_encoder": True,
    }
    assert changes("simcse_table4.py")["neutral sample"] == {
        "data.train": "data/nli_pairs.csv",
        "data.positives": "neutral",
        "data.subsample": 134_000,
    }
    assert changes("simcse_table7.py")["alpha 2.0"] == {"objective.info_nce.hard_negative_weight": 2.0}
    assert changes("simcse_table7.py")["with neutral"]["data.columns.neutral"] == "neutral"
    assert changes("simcse_tableD1.py")["dot product"] == {
        "objective.info_nce.similarity": "dot",
        "objective.info_nce.temperature": 1.0,
    }
    assert changes("simcse_grid.py:sup")["batch 64 at 1e-05"] == {
        "train.batch_size": 64,
        "train.learning_rate": 1e-5,
    }
    noise = {"objective.info_nce.weight": 0.0, "objective.off_dropout.weight": 1.0}
    assert changes("simcse_pp_table1.py")["negatives - noise"] == noise | {"views.negative": "mean"}
    positives = noise | {"views.positive": "noisy"}
    assert changes("simcse_pp_table1.py")["positives + noise of variance 0.1"] == positives
    assert changes("simcse_pp_table1.py")["positives + noise of deviation 0.1"] == positives | {"views.noise": 0.01}
    as_released = {"reading": "released", "weight": 0.1, "off_diagonal_weight": 0.012, "artificial": 704}
    assert changes("simcse_pp_table2.py")["released 704 artificial"] == {
        f"objective.barlow_twins.{field}": value for field, value in as_released.items()
    }
    assert resolved("simcse_pp_table2.py")["paper 0 artificial"].objective.barlow_twins.off_diagonal_weight == 0.005
    assert changes("simcse_pp_table3.py:sbert_base")["SimCSE at 1e-5"] == {"train.learning_rate": 1e-5}
    assert changes("simcse_pp_table3.py")["dimension-wise"] == {"objective.dimension_wise.weight": 0.1}
    assert changes("simcse_pp_table5.py")["m-released dcl-paper m 0.5"] == {
        "objective.off_dropout.reading": "released",
        "objective.off_dropout.m": 0.5,
    }
    assert changes("simcse_pp_table5.py:m_paper_dcl_released")["m-paper dcl-released tau 1"] == {
        "objective.dimension_wise.temperature": 1.0,
    }
    assert changes("simcse_pp_table6.py")["SimCSE++"] == noise | {"objective.dimension_wise.weight": 0.1}
    assert changes("isotropy_batch_size.py")["256"] == {"train.batch_size": 256}


def recipe(name):
    config, _ = parse([f"--config={ROOT / 'configs' / name}", "--workdir=w"])
    return flatten(config)


def without(fields, *names):
    return {name: value for name, value in fields.items() if not name.startswith(names)}


# Fields that a sweep's base sets for its other rows, and that its baseline ignores.
UNUSED = ("objective.dimension_wise", "objective.off_dropout", "data.augment", "views.negative", "eval.transfer")
SAME = {
    ("simcse_table1.py", "none"): "unsup_bert.py",
    ("simcse_table2.py", "SimCSE"): "unsup_bert.py",
    ("simcse_table3.py", "0.1"): "unsup_bert.py",
    ("simcse_table4.py", "unsupervised"): "unsup_bert.py",
    ("simcse_table4.py", "entailment + hard negatives"): "sup_bert.py",
    ("simcse_table6.py", "cls with head in training"): "unsup_bert.py",
    ("simcse_table6.py:sup", "cls with head"): "sup_bert.py",
    ("simcse_tableD1.py", "0.05"): "sup_bert.py",
    ("simcse_tableD2.py", "without MLM"): "sup_bert.py",
    ("simcse_tableD2.py", "lambda 0.1"): "sup_bert.py:mlm",
    ("simcse_table7.py", "with neutral"): "sup_bert.py:neutral",
    **{
        (table, f"{kind}. SimCSE-{size}"): f"{kind}_{encoder}.py{variant}"
        for table in ("simcse_table5.py", "simcse_tableE1.py")
        for kind in ("unsup", "sup")
        for size, encoder, variant in (
            ("BERT-base", "bert", ""),
            ("RoBERTa-base", "roberta", ""),
            ("RoBERTa-large", "roberta", ":large"),
        )
    },
    **{
        ("simcse_tableE1.py", f"{kind}. SimCSE-{size} with MLM"): f"{kind}_{encoder}.py:{variant}"
        for kind in ("unsup", "sup")
        for size, encoder, variant in (
            ("BERT-base", "bert", "mlm"),
            ("RoBERTa-base", "roberta", "mlm"),
            ("RoBERTa-large", "roberta", "large_mlm"),
        )
    },
    ("simcse_tableB3.py", "unsup. SimCSE-BERT-base"): "unsup_bert.py",
    ("simcse_tableB3.py", "sup. SimCSE-BERT-base"): "sup_bert.py",
    ("simcse_grid.py", "batch 64 at 3e-05"): "unsup_bert.py",
    ("simcse_grid.py:sup", "batch 512 at 5e-05"): "sup_bert.py",
}


@pytest.mark.parametrize("name, row", SAME)
def test_rows_are_the_recipes(name, row):
    row, same = flatten(resolved(name)[row]), recipe(SAME[name, row])
    assert without(row, *UNUSED) == without(same, *UNUSED)
    assert row["data.augment.name"] == same["data.augment.name"] == ""


OTHERS = {  # rows of other systems, which take all fields from their recipes
    ("simcse_table5.py", "IS-BERT-base"): "is_bert.py",
    ("simcse_tableE1.py", "IS-BERT-base"): "is_bert.py",
    ("simcse_table5.py", "CT-BERT-base"): "ct.py",
    ("simcse_table5.py", "CT-BERT-base (released)"): "ct.py:released",
    ("simcse_table5.py", "CT-SBERT-base"): "ct.py:sbert",
    ("simcse_table5.py", "DeCLUTR-RoBERTa-base"): "declutr.py",
    ("simcse_pp_table3.py", "IS-BERT"): "is_bert.py",
    ("simcse_pp_table3.py", "CT-BERT"): "ct.py",
    ("simcse_pp_table3.py", "CT-BERT (released)"): "ct.py:released",
    ("simcse_pp_table3.py", "ConSERT"): "consert.py",
    ("simcse_pp_table3.py:large", "ConSERT"): "consert.py:large",
    ("simcse_pp_table3.py", "SCD-BERT"): "scd.py",
    ("simcse_pp_table4.py", "DiffCSE"): "diffcse.py",
    ("simcse_pp_table4.py", "DiffCSE + SimCSE++"): "diffcse.py:simcse_plus_plus",
    **{(table, "SBERT-base"): "sbert_nli.py" for table in ("simcse_table5.py", "simcse_tableE1.py")},
    **{(table, "SRoBERTa-base"): "sbert_nli.py:roberta" for table in ("simcse_table5.py", "simcse_tableE1.py")},
}


@pytest.mark.parametrize("name, row", OTHERS)
def test_rows_of_other_systems_are_their_recipes(name, row):
    row, same = flatten(resolved(name)[row]), recipe(OTHERS[name, row])
    assert without(row, "eval.transfer") == without(same, "eval.transfer")
    assert row["eval.transfer"] == (name == "simcse_tableE1.py")


def test_the_map_of_the_code_says_what_each_recipe_is_composed_of():
    text = (ROOT / "docs" / "background" / "architecture.md").read_text(encoding="utf-8")
    table = re.search(r"## What each system is composed of\n.*?\n## ", text, re.DOTALL)[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("|")][2:]
    named = [name for cell in rows for name in re.findall(r"`([\w:]+)`", cell)]
    recipes = {path.stem for path in (ROOT / "configs").glob("*.py")} - {"quickstart", "tune"}
    assert len(rows) == 19 and {name.partition(":")[0] for name in named} == recipes
    for name in named:
        file, colon, variant = name.partition(":")
        assert recipe(f"{file}.py{colon}{variant}")


PLUS_PLUS = [
    ("simcse_pp_table6.py", "SimCSE++", "base"),
    ("simcse_pp_table5.py", "m-released dcl-paper centre", "base"),
]
PLUS_PLUS += [(f"simcse_pp_table3.py:{argument}", "SimCSE++", argument) for argument in ARGUMENTS["simcse_pp_table3"]]
PLUS_PLUS += [("simcse_pp_table3.py:sbert_base", "SimCSE++ at 1e-5", "sbert_base_released")]


@pytest.mark.parametrize("name, row, argument", PLUS_PLUS)
def test_the_best_rows_are_simcse_plus_plus(name, row, argument):
    same = recipe(f"simcse_plus_plus.py:{argument}")
    reading = ("objective.dimension_wise.reading",)  # the sweeps run either
    assert without(flatten(resolved(name)[row]), *reading) == without(same, *reading)


def test_simcse_plus_plus_has_the_paper_s_numbers():
    """Section 5.1."""
    large = recipe("simcse_plus_plus.py:large")
    assert (large["train.learning_rate"], large["train.batch_size"], large["train.epochs"]) == (8e-6, 64, 1)
    base = recipe("simcse_plus_plus.py")
    assert (base["train.learning_rate"], base["eval.every"], base["data.max_length"]) == (3e-5, 125, 32)
    assert (base["objective.off_dropout.m"], base["objective.off_dropout.temperature"]) == (0.9, 0.05)
    assert (base["objective.dimension_wise.temperature"], base["objective.dimension_wise.weight"]) == (5.0, 0.1)
    assert (base["objective.info_nce.weight"], base["objective.off_dropout.weight"]) == (0.0, 1.0)
    assert base["views.negative"] == "off"


def test_esimcse_has_the_numbers_of_its_script():
    found, contrast = {}, "objective.momentum_contrast"
    for argument in ARGUMENTS["esimcse"]:
        own = recipe(f"esimcse.py:{argument}")
        names = "model.init_from", "train.learning_rate", "model.dropout", "views.repetition", f"{contrast}.queue"
        found[argument] = tuple(own[name] for name in names)
        assert (own["train.batch_size"], own["train.epochs"], own["data.max_length"]) == (64, 1, 32)
        assert (own["model.pooler"], own["model.mlp"], own["eval.every"]) == ("cls", "train", 125)
        assert (own[f"{contrast}.momentum"], own[f"{contrast}.temperature"]) == (0.995, 0.05)
        assert (own[f"{contrast}.weight"], own["objective.info_nce.weight"]) == (1.0, 0.0)
        assert (own["views.anchor_change"], own["views.positive_change"]) == ("none", "repeated")
    assert found == {
        "base": ("bert-base-uncased", 3e-5, 0.1, 0.32, 160),
        "large": ("bert-large-uncased", 1e-5, 0.1, 0.32, 160),
        "roberta": ("roberta-base", 1e-5, 0.1, 0.30, 160),
        "roberta_large": ("roberta-large", 1e-5, 0.15, 0.28, 128),
    }


def test_rank_cse_has_the_numbers_of_the_public_script():
    found, consistency, distillation = {}, "objective.ranking_consistency.", "objective.ranking_distillation."
    for argument in ARGUMENTS["rank_cse"]:
        own = recipe(f"rank_cse.py:{argument}")
        names = "model.init_from", "teacher.model", "teacher.second"
        found[argument] = *(own[name] for name in names), own[f"{distillation}method"], own[f"{distillation}weight"]
        assert (own["train.batch_size"], own["train.epochs"], own["train.learning_rate"]) == (128, 1, 3e-5)
        assert (own["data.max_length"], own["eval.every"], own["model.dropout"]) == (32, 125, 0.1)
        assert (own["model.pooler"], own["model.mlp"], own["teacher.share"]) == ("cls", "train", 1 / 3)
        assert (own["objective.info_nce.weight"], own[f"{consistency}weight"]) == (1.0, 1.0)
        temperatures = {own[f"{term}temperature"] for term in (consistency, distillation, "objective.info_nce.")}
        assert (temperatures, own[f"{distillation}teacher_temperature"]) == ({0.05}, 0.025)
        assert (own[f"{consistency}reading"], own[f"{distillation}reading"]) == ("paper", "paper")
    bert = "bert-base-uncased", "voidism/diffcse-bert-base-uncased-sts", "princeton-nlp/unsup-simcse-bert-large-uncased"
    roberta = "roberta-base", "voidism/diffcse-roberta-base-sts", "princeton-nlp/unsup-simcse-roberta-large"
    assert found["base"] == (*bert, "listmle", 1.0) and found["listnet"] == (*bert, "listnet", 0.1)
    assert found["roberta"] == (*roberta, "listmle", 1.0)


def test_sncse_has_the_numbers_of_its_code():
    found, margin = {}, "objective.bidirectional_margin."
    for argument in ARGUMENTS["sncse"]:
        own = recipe(f"sncse.py:{argument}")
        names = "model.init_from", "train.batch_size", "train.learning_rate", f"{margin}weight"
        found[argument] = tuple(own[name] for name in names)
        assert (own[f"{margin}lower"], own[f"{margin}upper"], own["objective.info_nce.temperature"]) == (0.1, 0.3, 0.05)
        assert (own["train.epochs"], own["data.max_length"], own["eval.every"]) == (1, 32, 125)
        assert (own["model.pooler"], own["model.mlp"], own["objective.info_nce.negatives"]) == (
            "mask_token",
            "train",
            "positives",
        )
        templates = {'This sentence : " [X] " means [MASK] .', 'This sentence of " [X] " means [MASK] .'}
        assert {own["model.template"], own["views.positive_template"]} == templates
    assert found == {
        "base": ("bert-base-uncased", 256, 1e-5, 1e-3),
        "large": ("bert-large-uncased", 128, 5e-6, 1e-3),
        "roberta": ("roberta-base", 256, 1e-5, 5e-4),
        "roberta_large": ("roberta-large", 128, 5e-6, 5e-4),
    }


def test_prompt_bert_has_the_numbers_and_the_templates_of_its_script():
    shared = {
        "train.batch_size": 256,
        "train.learning_rate": 1e-5,
        "train.epochs": 1,
        "eval.every": 125,
        "model.mlp": "train",
    }
    shared |= {"model.pooler": "mask_token", "views.denoising": "paper", "data.max_length": 32 + 10}
    shared |= {"objective.info_nce.temperature": 0.05, "model.dropout": 0.1, "eval.development": "stsb"}
    templates = {
        "base": ("bert-base-uncased", 'This sentence of "[X]" means [MASK].', 'This sentence : "[X]" means [MASK].'),
        "roberta": ("roberta-base", "This sentence : ' [X] ' means [MASK].", "The sentence : ' [X] ' means [MASK]."),
    }
    for argument in ARGUMENTS["prompt_bert"]:
        own = recipe(f"prompt_bert.py:{argument}")
        assert {name: own[name] for name in shared} == shared
        names = ("model.init_from", "model.template", "views.positive_template")
        assert tuple(own[name] for name in names) == templates[argument]


def test_prompt_eol_has_the_numbers_of_its_script():
    shared = {"train.batch_size": 256, "train.learning_rate": 5e-4, "train.epochs": 1, "eval.every": 50}
    shared |= {"model.lora.rank": 64, "model.lora.alpha": 16.0, "model.lora.dropout": 0.05, "data.max_length": 32 + 12}
    shared |= {"model.lora.targets": ("all-linear",), "model.pooler": "last", "model.mlp": "none", "model.dropout": 0.0}
    shared |= {"model.template": 'This sentence : "[X]" means in one word:"', "objective.info_nce.temperature": 0.05}
    rows = {"data/nli_for_simcse.csv": 275_601, "data/wiki1m_for_simcse.txt": 1_000_000}
    for argument in ARGUMENTS["prompt_eol"]:
        own = recipe(f"prompt_eol.py:{argument}")
        assert {name: own[name] for name in shared} == shared
        assert ("wiki" in own["data.train"]) == argument.startswith("unsupervised")
        assert math.ceil(own["train.warmup"] * (rows[own["data.train"]] // 256)) == 100


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
    weights = {
        name: one.objective.barlow_twins.weight for name, one in resolved("simcse_pp_table2.py:paper", weight).items()
    }
    assert weights == dict.fromkeys(weights, 0.01) | {"SimCSE": 0.0}
