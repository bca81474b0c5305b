"""Runs and steps on pairs with scores."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import call, lines, random_model, refused, sentences, train_args
from support.resuming import trained_and_resumed
from support.steps import batch, recipe, settings, term

from simcse_jax.config import default_config
from simcse_jax.config.checks import ineffective, validate
from simcse_jax.data.scores import Scores
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.training.loss import make_loss
from simcse_jax.training.reading import scores_of

NAMES = ("cosent", "angle", "cosine_mse")


@functools.cache
def graded_gradient(devices=1, chunk_size=0):
    """The loss of all three objectives, and its gradient."""
    graph, params, _ = random_model(num_layers=1)
    scores = np.float32([0, 0.25, 0.25, 1, 0.8, 0.1, 0.5, 0.8])
    numbers = {name: {"weight": 1.0, "temperature": 0.05} for name in NAMES[:2]} | {"cosine_mse": {"weight": 1.0}}
    chosen = recipe(2, objectives=tuple(term(name) for name in NAMES), chunk_size=chunk_size)
    function = jax.jit(make_loss(graph, chosen, data_mesh(jax.devices()[:devices])))
    (loss, _), values = function(params, jnp.int32(0), batch(2) | {"score": scores}, settings(objective=numbers))
    return float(loss), {name: np.asarray(value) for name, value in values.items()}


@pytest.mark.exact
@pytest.mark.parametrize(
    ("devices", "chunk_size"),
    [(2, 3), (8, 0), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1, 1), (4, 1)))],
)
def test_the_gradient_is_the_same_on_any_number_of_devices_and_in_chunks(devices, chunk_size):
    (expected, gradient), (found, other) = graded_gradient(), graded_gradient(devices, chunk_size)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for name, value in gradient.items():
        scale = max(np.abs(value).max(), 1e-3)
        assert np.abs(other[name] - value).max() <= 1e-5 * scale, name


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
    config = default_config()
    chosen = {"model.init_from": str(model), "data.train": str(data), "data.max_length": 16, "eval.data": str(dev)}
    chosen |= {"train.batch_size": 8, "train.max_steps": 4, "eval.every": 2, "parallel.devices": 2}
    chosen |= {"objective.info_nce.weight": 0.0, "train.log_every": 1, "parallel.chunk_size": 2}
    chosen |= {"model.num_layers": 1}
    config.update_from_flattened_dict(chosen | {name.replace("__", "."): value for name, value in fields.items()})
    validate(config)
    return config


def test_a_run_resumes_bit_for_bit(tiny_bert, pairs, corpus, tmp_path, capsys):
    weights = {f"objective__{name}__weight": 1.0 for name in NAMES}
    config = config_of(tiny_bert, pairs, corpus["dev"], **weights, data__score_range=("0", "5"))
    trained_and_resumed(config, tmp_path)
    assert f"{pairs}: 48 pairs, 1 without a score skipped\n" in capsys.readouterr().out


def arguments(model, data, dev, workdir, *more):
    chosen = ["--config.objective.info_nce.weight=0", "--config.objective.cosent.weight=1"]
    return train_args(model, data, dev, workdir, *chosen, *more)


@pytest.mark.parametrize("name", NAMES)
def test_each_of_them_learns(name, tiny_bert, pairs, corpus, tmp_path):
    steps = [
        "--config.model.num_layers=1",
        "--config.train.max_steps=30",
        "--config.train.learning_rate=1e-3",
        "--config.model.dropout=0.05",
    ]
    chosen = ["--config.objective.cosent.weight=0", f"--config.objective.{name}.weight=1"]
    chosen += ["--config.data.score_range=0,5", "--config.train.log_every=1", "--config.eval.every=30"]
    done = call("train", *arguments(tiny_bert, pairs, corpus["dev"], tmp_path / "run", *steps, *chosen))
    assert done.returncode == 0, done.stderr
    losses = [line["loss"] for line in lines(tmp_path / "run") if "loss" in line]
    assert np.mean(losses[-6:]) < 0.9 * np.mean(losses[:6])


def test_data_that_do_not_fit_are_refused_and_leave_no_workdir(tiny_bert, pairs, corpus, tmp_path):
    def write(name, *rows):
        (tmp_path / name).write_text("\n".join(rows) + "\n")
        return tmp_path / name

    rows = ["a cat,a dog,1.5"] * 9
    cases = [
        (corpus["csv"], (), "no scores, but objective.cosent needs them"),
        (corpus["txt"], (), "no scores, but objective.cosent needs them"),
        (write("word.csv", "sent0,sent1,score", *rows, "a,b,good"), (), "word.csv: line 11: the field 'score' holds"),
        (write("same.csv", "sent0,sent1,score", *rows), (), "same.csv: all 9 scores are 1.5, so objective.cosent has"),
        (pairs, ["--config.objective.cosine_mse.weight=1"], "but objective.cosine_mse needs scores from 0 to 1"),
        (pairs, ["--config.data.score_range=0,1"], "which is outside of data.score_range=0,1"),
        (pairs, ["--config.objective.info_nce.weight=1"], "next to cosent it would take all pairs with scores for"),
    ]
    for data, more, message in cases:
        refused(call("train", *arguments(tiny_bert, data, corpus["dev"], tmp_path / "run", *more)), message)
        assert not (tmp_path / "run").exists()


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
