"""Runs and steps on pairs with scores."""

import numpy as np
import pytest
from support import random_model, sentences
from support.gradients import assert_same, compiled, computed
from support.run_configs import short_run
from support.steps import batch, recipe, settings, term

from simcse_jax.config import default_config
from simcse_jax.config.checks import ineffective
from simcse_jax.data.scores import Scores
from simcse_jax.errors import UserError
from simcse_jax.training.inputs import read_inputs
from simcse_jax.training.reading import scores_of

NAMES = ("cosent", "angle", "cosine_mse")


def graded_gradient(devices=1, chunk_size=0):
    """The loss of all three objectives, and its gradient."""
    graph, params, _ = random_model(num_layers=1)
    data = batch(2) | {"score": np.float32([0, 0.25, 0.25, 1, 0.8, 0.1, 0.5, 0.8])}
    numbers = {name: {"weight": 1.0, "temperature": 0.05} for name in NAMES[:2]} | {"cosine_mse": {"weight": 1.0}}
    chosen = recipe(2, objectives=tuple(term(name) for name in NAMES), chunk_size=chunk_size)
    return computed(compiled(graph, chosen, devices), params, data, settings(objective=numbers))


@pytest.mark.exact
@pytest.mark.slow
def test_the_gradient_is_the_same_on_several_devices_and_in_chunks():
    assert_same(graded_gradient(4, 1), graded_gradient())


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """48 pairs with scores from 0 to 5: the share of the words that they have in common; one of them has none."""
    path = tmp_path_factory.mktemp("graded") / "pairs.tsv"
    rows = ["sentence1\tsentence2\tscore"]
    for first, second in zip(sentences(49, 1), sentences(49, 2), strict=True):
        one, other = set(first.split()), set(second.split())
        rows.append(f"{first}\t{second}\t{5 * len(one & other) / len(one | other):.2f}")
    rows[-1] = rows[-1].rpartition("\t")[0] + "\t"
    path.write_text("\n".join(rows) + "\n")
    return path


def config_of(model, data, dev, **fields):
    return short_run(model, data, dev, objective__info_nce__weight=0.0, model__num_layers=1, **fields)


def test_pairs_without_a_score_are_skipped(tiny_bert, pairs, corpus, capsys):
    read_inputs(config_of(tiny_bert, pairs, corpus["dev"], objective__cosent__weight=1.0))
    assert f"{pairs}: 48 pairs, 1 without a score skipped\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "fields", "named"),
    [
        ("csv", {}, "no scores, but objective.cosent needs them"),
        ("sent0,sent1,score\na cat,a dog,1.5\na,b,good\n", {}, "line 3: the field 'score'"),
        ("sent0,sent1,score\n" + "a cat,a dog,1.5\n" * 9, {}, "all 9 scores are 1.5"),
        ("pairs", {"objective__cosine_mse__weight": 1.0}, "objective.cosine_mse needs scores from 0 to 1"),
        ("pairs", {"data__score_range": ("0", "1")}, "outside of data.score_range=0,1"),
    ],
)
def test_data_that_do_not_fit_are_refused(data, fields, named, tiny_bert, pairs, corpus, tmp_path):
    path = {"csv": corpus["csv"], "pairs": pairs}.get(data, tmp_path / "own.csv")
    if path == tmp_path / "own.csv":
        path.write_text(data)
    with pytest.raises(UserError, match=named):
        read_inputs(config_of(tiny_bert, path, corpus["dev"], objective__cosent__weight=1.0, **fields))


def scored(**fields):
    config = default_config()
    chosen = {"objective.info_nce.weight": 0.0, "objective.cosent.weight": 1.0}
    config.update_from_flattened_dict(chosen | {name.replace("__", "."): value for name, value in fields.items()})
    return config


def test_scores_are_read_as_the_objectives_need_them():
    assert scores_of(default_config()) is None
    assert scores_of(scored()) == Scores("objective.cosent")
    assert scores_of(scored(data__score_range=("0", "5"))) == Scores("objective.cosent", (0.0, 5.0), True)
    unit = {"objective__cosine_mse__weight": 1.0}
    assert scores_of(scored(**unit)) == Scores("objective.cosine_mse", (0.0, 1.0))
    assert scores_of(scored(**unit, data__score_range=("1", "5"))).bounds == (1.0, 5.0)


def test_fields_without_an_objective_of_scores_have_no_effect():
    fields = {"data__score_range": ("0", "5"), "data__columns__score": "z"}
    assert not [name for name in ineffective(scored(**fields)) if "score" in name]
    unused = ineffective(scored(**fields, objective__cosent__weight=0.0, objective__info_nce__weight=1.0))
    assert {"data.columns.score=z", "data.score_range=('0', '5')"} <= set(unused)
