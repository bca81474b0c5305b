"""Runs on several sources: batches of one source each, weights, prompts and lengths."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from support import call, lines, sentences
from support.corpora import prepare
from support.resuming import trained_and_resumed

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config
from simcse_jax.data.one_source import OneSource
from simcse_jax.data.tokens import Lengths
from simcse_jax.errors import UserError
from simcse_jax.runs.loading import load_model
from simcse_jax.training.reading import read_corpus
from simcse_jax.training.run import train_and_evaluate


@pytest.fixture(scope="module")
def pairs(shared):
    """Thirty pairs: short queries and long passages."""

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
    made = default_config()
    fields = {
        "model.init_from": str(tiny_bert),
        "model.num_layers": 1,
        "data.train": f"{corpus['csv']},{pairs}",
        "data.max_length": 24,
        "train.batch_size": 8,
        "train.max_steps": 4,
        "train.learning_rate": 1e-3,
        "train.log_every": 1,
        "eval.data": str(corpus["dev"]),
        "eval.every": 2,
        "parallel.devices": 1,
    }
    made.update_from_flattened_dict(fields)
    return made


def changed(config, **fields):
    made = config.copy_and_resolve_references()
    made.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return made


def read(config, model):
    validate(config)
    return read_corpus(config, model, model.tokenizer)


def losses(config, folder):
    train_and_evaluate(config, str(folder))
    return [line["loss"] for line in lines(folder) if "loss" in line]


QUERIES = {
    "data__lengths__anchor": 10,
    "data__prompts__anchor": "the ,a dog ",
    "data__prompts__positive": ",cat ",
}


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


@pytest.mark.exact
def test_a_run_of_batches_of_one_source_resumes_bit_for_bit(config, corpus, pairs, tmp_path, capsys):
    """Without duplicates, as far as that can be: of seven equal queries, four have a batch or the rest of an epoch."""
    header, *rows = pairs.read_text().splitlines()
    rows[1:7] = [rows[0].split(",")[0] + "," + row.split(",")[1] for row in rows[1:7]]
    (tmp_path / "pairs.csv").write_text("\n".join([header, *rows]) + "\n")
    sources = f"{corpus['csv']},{tmp_path / 'pairs.csv'}"
    made = changed(config, data__batching="one_source", data__weights=("1", "2"), **QUERIES)
    trained_and_resumed(changed(made, data__train=sources, data__no_duplicates=True), tmp_path)
    printed = capsys.readouterr().out
    assert "pairs.csv: data.no_duplicates: 3 of the 30 rows of the first epoch" in printed
    first = printed.index("batches of one source each, 8 an epoch")
    assert first < printed.index("compiled program 1 of 2") and "compiled program 2 of 2" in printed
    assert "train.csv: 3 batches (37.5%), " in printed and "pairs.csv: 5 batches (62.5%), " in printed


@pytest.mark.slow
@pytest.mark.exact
@pytest.mark.parametrize("batching", ["mixed", "one_source"])
def test_devices_chunks_and_padding_change_nothing(batching, config, tmp_path):
    made = changed(config, data__batching=batching, data__mixed=batching == "mixed", data__weights=("1", "2"))
    made = changed(made, **QUERIES)
    expected = losses(made, tmp_path / "one")
    others = {"devices": 4, "chunk_size": 2}
    for name, value in others.items():
        found = losses(changed(made, **{f"parallel__{name}": value}), tmp_path / name)
        np.testing.assert_allclose(found, expected, rtol=1e-4, err_msg=name)
    found = losses(changed(made, train__unpad=False), tmp_path / "padded")
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.exact
def test_lengths_that_cut_nothing_change_nothing(config, pairs, tmp_path):
    made = changed(config, data__train=str(pairs))
    found = losses(changed(made, data__lengths__anchor=16), tmp_path / "lengths")
    np.testing.assert_allclose(found, losses(made, tmp_path / "whole"), rtol=1e-4)


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


def test_equal_texts_are_told_where_rows_have_two_or_more(config, corpus, pairs, model):
    both = f"{corpus['txt']},{pairs}"
    for name, fields, told in (
        (str(pairs), {}, [True]),
        (str(pairs), {"data__equal_texts": "negatives"}, [False]),
        (str(pairs), {"objective__info_nce__weight": 0.0, "objective__barlow_twins__weight": 1.0}, [False]),
        (str(corpus["txt"]), {}, [False]),
        (str(corpus["txt"]), {"data__equal_texts": "left_out"}, [True]),
        (both, {"data__mixed": True}, [True]),
        (both, {"data__batching": "one_source"}, [False, True]),
    ):
        parts = read(changed(config, data__train=name, **fields), model).parts
        assert [part.texts is not None for part in parts] == told, (name, fields)
        assert all(part.texts.shape == part.input_ids.shape[:2] for part in parts if part.texts is not None)
    texts = read(changed(config, data__train=both, data__mixed=True), model).texts
    np.testing.assert_array_equal(texts[:40, 0], texts[:40, 1])  # a sentence alone is its own positive


@pytest.mark.parametrize("batching", ["mixed", "one_source"])
def test_texts_that_are_kept_apart_are_those_of_each_part(batching, config, corpus, pairs, model):
    fields = {"data__train": f"{corpus['txt']},{pairs}", "data__mixed": batching == "mixed", "data__batching": batching}
    found = read(changed(config, data__no_duplicates=True, data__equal_texts="negatives", **fields), model)
    assert [part.apart.shape for part in found.parts] == [part.input_ids.shape[:2] for part in found.parts]
    assert all(part.apart.min() >= 0 and part.texts is None for part in found.parts)
    off = {"objective__info_nce__weight": 0.0, "objective__barlow_twins__weight": 1.0}
    for other in ({}, {"data__no_duplicates": True, **off}):
        assert all(part.apart is None for part in read(changed(config, **fields, **other), model).parts)


@pytest.mark.parametrize("batching", ["mixed", "one_source"])
def test_prepared_corpora_give_the_rows_that_files_give(batching, config, corpus, pairs, tiny_bert, model, tmp_path):
    fields = {"data__batching": batching, "data__mixed": batching == "mixed", "data__weights": ("1", "2")}
    lengths = Lengths(10, 24)
    prepare(tmp_path / "triplets", tiny_bert, corpus["csv"], prompts=["the ", "", ""], max_length=lengths)
    prepare(tmp_path / "pairs", tiny_bert, pairs, prompts=["a dog ", "cat "], max_length=lengths)
    text = read(changed(config, **fields, **QUERIES), model)
    folders = f"{tmp_path / 'triplets'},{tmp_path / 'pairs'}"
    made = changed(config, **fields, data__train=folders, data__lengths__anchor=10)
    prepared = read(made, model)
    assert prepared.num_rows == text.num_rows == 70 and prepared.prompts == (
        text.prompts if batching != "mixed" else ()
    )
    ours, theirs = prepared.batches(8, 1), text.batches(8, 1)
    seen = [set(), set()]
    for step in range(16):
        for rows, batch in zip(seen, (ours[step], theirs[step]), strict=True):
            for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True):
                rows.add(tuple(tuple(a[m > 0].tolist()) for a, m in zip(ids, mask, strict=True)))
        if batching == "mixed":  # the orders of sources and of their rows are the same
            np.testing.assert_array_equal(ours[step]["input_ids"], theirs[step]["input_ids"])
            np.testing.assert_array_equal(ours[step]["present"], theirs[step]["present"])
    assert (seen[0] == seen[1]) if batching == "mixed" else len(seen[0]) > 60
    trained_and_resumed(made, tmp_path)


def test_the_prompts_are_those_of_the_exported_model(config, pairs, tmp_path):
    made = changed(config, data__train=str(pairs), data__prompts__anchor="the ", data__prompts__positive="cat ")
    train_and_evaluate(made, str(tmp_path / "run"))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["model"]["prompts"] == {
        "query": "the ",
        "document": "cat ",
    }
    assert call("export", "--workdir", tmp_path / "run", "--output", tmp_path / "out").returncode == 0
    settings = json.loads((tmp_path / "out" / "config_sentence_transformers.json").read_text())
    assert settings["prompts"] == {"query": "the ", "document": "cat "} and settings["default_prompt_name"] is None
    assert load_model(str(tmp_path / "out")).settings.prompts["query"] == "the "


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data__lengths__positive": 65}, "data.lengths.positive=65: .* takes at most 64 tokens"),
        ({"data__prompts__anchor": "the cat " * 20}, "data.prompts.anchor=.*: fills all 24 tokens"),
        ({}, "name sources of one kind, .*or set data.mixed=True"),
        ({"data__mixed": True, "data__weights": ("1e-9", "1")}, "data.weights: .*train.csv would have no row"),
        ({"data__batching": "one_source", "train__batch_size": 32}, "pairs.csv: 30 examples are fewer than a batch"),
        ({"data__batching": "one_source", "data__weights": ("1e-9", "1")}, "train.csv would have none of the 8"),
        (
            {"data__batching": "one_source", "objective__margin_mse__weight": 1.0, "teacher__model": "x"},
            "objective.margin_mse.weight: needs hard negatives, but .*pairs.csv has no column|teacher",
        ),
    ],
)
def test_refusals(fields, message, config, model):
    with pytest.raises(UserError, match=message):
        read(changed(config, **fields), model)


def test_prompts_and_lengths_of_positives_need_some(config, corpus, pairs, model):
    alone = changed(config, data__train=str(corpus["txt"]))
    with pytest.raises(UserError, match=r"data.lengths.positive=16: .*train.txt has one column"):
        read(changed(alone, data__lengths__positive=16), model)
    with pytest.raises(UserError, match=r"data.prompts.positive='cat ': .*train.txt has one column"):
        read(changed(alone, data__prompts__positive="cat "), model)
    both = changed(config, data__train=f"{corpus['txt']},{pairs}", data__mixed=True)
    with pytest.raises(UserError, match=r"data.prompts.positive='cat ': .*train.txt has one column"):
        read(changed(both, data__prompts__positive="cat ,dog "), model)
    read(changed(both, data__prompts__positive="cat ", data__lengths__positive=16), model)
    drawn = changed(config, data__subsample=2, data__batching="one_source", train__batch_size=2)
    with pytest.raises(UserError, match=r"fewer than a batch of this source|draws no row"):
        read(drawn, model)


def test_objectives_that_need_the_same_columns_take_sources_alone(config, corpus, pairs, model):
    """With batches of one source no row stands in for a missing one."""
    made = changed(config, data__batching="one_source", projector__widths="2D,D", projector__objectives=("info_nce",))
    assert len(read(made, model).parts) == 2
    with pytest.raises(UserError, match=r"data\.mixed: batch norm"):
        read(changed(made, data__batching="mixed", data__mixed=True), model)
    weighted = changed(made, objective__info_nce__hard_negative_weight=2.0)
    assert read(weighted, model).num_columns == 3  # one source has them


def test_repeated_tokens_are_refused_where_the_model_has_a_template_already(config, model):
    own = dataclasses.replace(model, template="the cat [X] sat")
    fields = validate(changed(config, **{"views.positive_change": "repeated"}))
    with pytest.raises(UserError, match=r"repeats words of the template that .*tiny-bert has, too"):
        read_corpus(fields, own, own.tokenizer)


def test_repeated_tokens_need_room(config, model, tmp_path):
    """Also where a sentence is its own positive, of the anchors' length."""
    (tmp_path / "long.txt").write_text(f"{'the cat ' * 40}\n" * 20)
    alone = changed(config, data__train=str(tmp_path / "long.txt"), views__positive_change="repeated")
    read(changed(alone, data__max_length=32), model)
    read(changed(alone, data__max_length=60, data__lengths__anchor=32), model)
    for fields in ({"data__max_length": 60}, {"data__max_length": 16, "data__lengths__anchor": 60}):
        with pytest.raises(UserError, match=r"a positive of 60 tokens then has up to 78, and .* takes at most 64"):
            read(changed(alone, **fields), model)
