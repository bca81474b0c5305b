import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from support import call, lines, sentences
from support.configs import changed, short_run
from support.corpora import prepare
from support.resuming import trained_and_resumed

from simcse_jax.config.checks import validate
from simcse_jax.data.one_source import OneSource
from simcse_jax.data.tokens import Lengths
from simcse_jax.errors import UserError
from simcse_jax.runs.loading import load_model
from simcse_jax.training.reading import read_corpus
from simcse_jax.training.run import train_and_evaluate
from simcse_jax.training.setup import check_corpus, data_spec

QUERIES = {"data__lengths__anchor": 10, "data__prompts__anchor": "the ,a dog ", "data__prompts__positive": ",cat "}
MIXED = {"data__mixed": True, "data__weights": ("1", "2"), **QUERIES}
APART = {"data__batching": "one_source", "data__weights": ("1", "2"), "data__no_duplicates": True, **QUERIES}
TAUGHT = {"objective__margin_mse__weight": 1.0, "teacher__model": "x"}
PROJECTED = {"projector__widths": "2D,D", "projector__objectives": ("info_nce",)}
REPEATED = {"views__positive_change": "repeated"}
CLASSES = {"objective__supcon__weight": 1.0}
ONE_SOURCE = {"data__batching": "one_source"}


@pytest.fixture(scope="module")
def pairs(shared):
    def write(path):
        rows = zip(sentences(30, 5), sentences(30, 6), sentences(30, 7), strict=True)
        path.write_text("sent0,sent1\n" + "".join(f"{a},{b} {c} {b}\n" for a, b, c in rows))

    return shared("pairs.csv", write)


@pytest.fixture(scope="module")
def model(tiny_bert):
    return load_model(str(tiny_bert))


@pytest.fixture
def config(tiny_bert, corpus, pairs):
    """A run on triplets and pairs; the triplets are 40."""
    fields = {"model__num_layers": 1, "data__max_length": 24}
    return short_run(tiny_bert, f"{corpus['csv']},{pairs}", corpus["dev"], **fields)


def read(config, model):
    validate(config)
    found = read_corpus(data_spec(config), model, model.tokenizer)
    check_corpus(config, found)
    return found


def test_a_run_says_how_many_sentences_are_cut(config, model, capsys):
    alone = changed(config, data__train=config.data.train.split(",")[1])
    texts = [text for line in Path(alone.data.train).read_text().splitlines()[1:] for text in line.split(",")]
    for lengths in ({}, {"data__lengths__anchor": 5}):
        most = (lengths.get("data__lengths__anchor", 9), 9)
        longer = sum(len(model.tokenizer([text], 64)[0]) > most[row % 2] for row, text in enumerate(texts))
        assert 0 < read(changed(alone, data__max_length=9, **lengths), model).cut == longer < 60
        named = " and ".join(map(str, dict.fromkeys(most)))
        assert f"{longer} of 60 sentences have more than {named} tokens and are cut there\n" in capsys.readouterr().out
    read(changed(alone, data__max_length=64), model)
    assert "cut" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.exact
@pytest.mark.parametrize(
    ("fields", "others"),
    [
        (MIXED, {"parallel__chunk_size": 2}),
        (APART, {"parallel__devices": 4, "train__unpad": False}),
        ({"data__subsample": 40, "data__mixed": True}, {"data__lengths__anchor": 16}),  # which cut nothing
    ],
)
def test_a_run_resumes_bit_for_bit_and_devices_chunks_padding_change_nothing(fields, others, config, tmp_path, capsys):
    made = changed(config, **fields)
    trained_and_resumed(made, tmp_path)
    printed = capsys.readouterr().out
    for text in ("compiled program 1 of 2", "compiled program 2 of 2"):
        assert (text in printed) == (fields is APART)
    train_and_evaluate(changed(made, **others), str(tmp_path / "other"))
    losses = [[line["loss"] for line in lines(tmp_path / name) if "loss" in line] for name in ("other", "run")]
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.exact
def test_a_batch_of_one_source_is_that_of_a_run_on_it_alone(config, corpus, pairs, model):
    found = read(changed(config, data__batching="one_source"), model)
    assert isinstance(found, OneSource) and found.num_columns == 3 and found.fewest_columns == 2
    for name, part in zip((corpus["csv"], pairs), found.parts, strict=True):
        alone = read(changed(config, data__train=str(name)), model)
        assert part.fingerprint == alone.fingerprint and part.shape == alone.shape
        for ours, expected in zip(part.batches(8, 1)[3].values(), alone.batches(8, 1)[3].values(), strict=True):
            np.testing.assert_array_equal(ours, expected)


def test_without_the_new_fields_several_sources_are_read_as_before(config, corpus, model):
    made = changed(config, data__mixed=True)
    found = read(made, model)
    assert found.mixture is None and found.lengths == () and found.prompts == () and found.sizes == (40, 30)
    other = read(changed(made, data__weights=("1", "1")), model)
    np.testing.assert_array_equal(found.input_ids, other.input_ids)
    moved = dataclasses.replace(other, sizes=(39, 31))  # weighted, the same rows have another order
    assert found.fingerprint == dataclasses.replace(found, sizes=(39, 31)).fingerprint
    assert other.fingerprint != moved.fingerprint
    assert read(changed(config, data__train=str(corpus["csv"]), data__weights=("3",)), model).mixture is None
    order = found.batches(8, 1)._examples(0)
    weighted = read(changed(made, data__weights=("1", "3")), model).batches(8, 1)._examples(0)
    assert np.bincount(order >= 40).tolist() == [40, 30] and np.bincount(weighted >= 40).tolist() == [18, 52]


def test_equal_texts_are_told_where_rows_have_two_or_more_and_kept_apart_in_each_part(config, corpus, pairs, model):
    both, off = f"{corpus['txt']},{pairs}", {"objective__info_nce__weight": 0.0, "objective__barlow_twins__weight": 1.0}
    for name, fields, are_read in (
        (str(pairs), {}, [True]), (str(pairs), {"data__equal_texts": "negatives"}, [False]), (str(pairs), off, [False]),
        (str(corpus["txt"]), {}, [False]), (str(corpus["txt"]), {"data__equal_texts": "left_out"}, [True]),
        (both, {"data__mixed": True}, [True]), (both, {"data__batching": "one_source"}, [False, True]),
    ):  # fmt: skip
        parts = read(changed(config, data__train=name, **fields), model).parts
        assert [part.texts is not None for part in parts] == are_read, (name, fields)
        assert all(part.texts.shape == part.input_ids.shape[:2] for part in parts if part.texts is not None)
    texts = read(changed(config, data__train=both, data__mixed=True), model).texts
    np.testing.assert_array_equal(texts[:40, 0], texts[:40, 1])  # a sentence alone is its own positive
    for sources in ({"data__mixed": True}, {"data__batching": "one_source"}):
        made = changed(config, data__train=f"{corpus['txt']},{pairs}", **sources)
        found = read(changed(made, data__no_duplicates=True, data__equal_texts="negatives"), model)
        assert [part.apart.shape for part in found.parts] == [part.input_ids.shape[:2] for part in found.parts]
        assert all(part.apart.min() >= 0 and part.texts is None for part in found.parts)
        for other in ({}, {"data__no_duplicates": True, **off}):
            assert all(part.apart is None for part in read(changed(made, **other), model).parts)


@pytest.mark.parametrize("mixed", [True, False])
def test_prepared_corpora_give_the_rows_that_files_give(mixed, config, corpus, pairs, tiny_bert, model, tmp_path):
    fields = {"data__batching": "mixed" if mixed else "one_source", "data__mixed": mixed, "data__weights": ("1", "2")}
    lengths = Lengths(10, 24)
    prepare(tmp_path / "triplets", tiny_bert, corpus["csv"], prompts=["the ", "", ""], max_length=lengths)
    prepare(tmp_path / "pairs", tiny_bert, pairs, prompts=["a dog ", "cat "], max_length=lengths)
    text = read(changed(config, **fields, **QUERIES), model)
    folders = f"{tmp_path / 'triplets'},{tmp_path / 'pairs'}"
    prepared = read(changed(config, **fields, data__train=folders, data__lengths__anchor=10), model)
    assert prepared.num_rows == text.num_rows == 70 and prepared.prompts == (() if mixed else text.prompts)
    ours, theirs, seen = prepared.batches(8, 1), text.batches(8, 1), (set(), set())
    for step in range(16):
        for rows, batch in zip(seen, (ours[step], theirs[step]), strict=True):
            for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
                rows.add(tuple(tuple(a[m > 0].tolist()) for a, m in zip(ids, mask, strict=True)))
        if mixed:  # the orders of sources and of their rows are the same
            for name in ("input_ids", "present"):
                np.testing.assert_array_equal(ours[step][name], theirs[step][name])
    assert (seen[0] == seen[1]) if mixed else len(seen[0]) > 60


@pytest.mark.slow
def test_the_prompts_are_those_of_the_exported_model(config, pairs, tmp_path):
    made = changed(config, data__train=str(pairs), data__prompts__anchor="the ", data__prompts__positive="cat ")
    train_and_evaluate(changed(made, train__max_steps=1, eval__data=""), str(tmp_path / "run"))
    prompts = {"query": "the ", "document": "cat "}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["model"]["prompts"] == prompts
    assert call("export", "--workdir", tmp_path / "run", "--output", tmp_path / "out").returncode == 0
    settings = json.loads((tmp_path / "out" / "config_sentence_transformers.json").read_text())
    assert settings["prompts"] == prompts and settings["default_prompt_name"] is None
    assert load_model(str(tmp_path / "out")).settings.prompts["query"] == "the "


def test_what_does_not_fit_the_sources_is_refused(config, corpus, pairs, model, tmp_path):
    (tmp_path / "long.txt").write_text(f"{'the cat ' * 40}\n" * 20)
    (tmp_path / "one.csv").write_text("text,label\n" + "".join(f"the cat {row},cats\n" for row in range(20)))
    (tmp_path / "two.csv").write_text("sent0,sent1,label\n" + "".join(f"cat,dog,{row % 2}\n" for row in range(20)))
    files = {**corpus, "pairs": pairs, "long": tmp_path / "long.txt"}
    files |= {name: tmp_path / f"{name}.csv" for name in ("one", "two")}
    for sources, fields, named in (
        ("csv pairs", {"data__lengths__positive": 65}, "data.lengths.positive=65: .* 64 tokens"),
        ("csv pairs", {"data__prompts__anchor": "the cat " * 20}, "data.prompts.anchor=.* 24 tokens"),
        ("csv pairs", {}, "data.mixed=True"),
        ("csv pairs", {"data__mixed": True, "data__weights": ("1e-9", "1")}, "data.weights: .*train.csv"),
        ("csv pairs", {**ONE_SOURCE, "train__batch_size": 32}, "pairs.csv: 30 examples"),
        ("csv pairs", {**ONE_SOURCE, "data__weights": ("1e-9", "1")}, "train.csv would have none of the 8"),
        ("csv pairs", {**ONE_SOURCE, "data__subsample": 2, "train__batch_size": 2}, "fewer than a batch|draws no row"),
        ("csv pairs", {**ONE_SOURCE, **TAUGHT}, "objective.margin_mse.weight: .*pairs.csv|teacher"),
        ("csv pairs", {"data__mixed": True, **PROJECTED}, "data.mixed"),
        ("two", CLASSES, "objective.supcon.weight: needs sentences with classes, but .*has 2 columns"),
        ("one", CLASSES, "one.csv: all 20 rows have one class; bring rows of another"),
        ("long", {**REPEATED, "data__max_length": 60}, "up to 78 tokens, .* 64"),
        ("long", {**REPEATED, "data__max_length": 16, "data__lengths__anchor": 60}, "up to 78 tokens, .* 64"),
    ):
        with pytest.raises(UserError, match=named):
            read(changed(config, data__train=",".join(str(files[name]) for name in sources.split()), **fields), model)
    own = dataclasses.replace(model, template="the cat [X] sat")  # which has a template already
    with pytest.raises(UserError, match=r"config\.views\.positive_change='repeated': .*tiny-bert"):
        read(changed(config, **REPEATED), own)
    both = changed(config, data__train=f"{corpus['txt']},{pairs}", data__mixed=True)
    read(changed(both, data__prompts__positive="cat ", data__lengths__positive=16), model)
    one_source = changed(config, **ONE_SOURCE)  # no row stands in for a missing one
    assert len(read(changed(one_source, **PROJECTED), model).parts) == 2
    weighted = changed(one_source, objective__info_nce__hard_negative_weight=2.0)
    assert read(weighted, model).num_columns == 3  # one source has them
    alone = changed(config, data__train=str(tmp_path / "long.txt"), **REPEATED)
    read(changed(alone, data__max_length=32), model)
    read(changed(alone, data__max_length=60, data__lengths__anchor=32), model)  # its own positive is as long as it
