"""Runs and steps at several sizes of the embeddings."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from support import call, random_model, refused, train_args
from support.checks import random
from support.equations import assert_is_equation
from support.gradients import assert_same, compiled, computed
from support.steps import INFO_NCE, alone, batch, recipe, settings, term

from simcse_jax import SimCSE
from simcse_jax.config import default_config
from simcse_jax.config.checks import validate
from simcse_jax.errors import UserError
from simcse_jax.objectives.objective import total
from simcse_jax.runs.exporting import export
from simcse_jax.training.setup import make_recipe, make_settings

SIZES, WEIGHTS = (8, 5, 2), np.float32([1, 0.5, 2])


def test_value_and_gradient_are_the_weighted_sum_of_the_sizes_losses():
    """As `MatryoshkaLoss` of sentence-transformers has it around two losses of it."""
    scores = np.float32([0, 1, 0.5, 0.5, 0.3, 0.9])
    terms = [INFO_NCE, term("cosent")]
    numbers = {"info_nce": {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}}
    numbers |= {"cosent": {"weight": 0.5, "temperature": 0.05}}

    def ours(rows):
        seen = alone({"anchor": rows[0], "positive": rows[1]}, score=jnp.asarray(scores))
        return total([(each, seen) for each in terms], numbers, SIZES, jnp.asarray(WEIGHTS))

    def equation(rows):
        found = 0.0
        for size, weight in zip(SIZES, WEIGHTS, strict=True):
            one, other = (x[:, :size] / np.linalg.norm(x[:, :size], axis=1, keepdims=True) for x in rows)
            s = one @ other.T / 0.05
            contrast = np.mean(np.log(np.exp(s).sum(axis=1)) - np.diag(s))
            higher = scores[:, None] > scores
            found += weight * (contrast + 0.5 * np.log(1 + np.sum(np.exp(np.diag(s) - np.diag(s)[:, None])[higher])))
        return found

    assert_is_equation(ours, equation, random(2, 6, 8))


def test_losses_of_tokens_count_once():
    one, other = random(2, 6, 8)
    seen = alone({"anchor": one, "positive": other}, tokens=(jnp.full(6, 2.0), jnp.full(6, 1)))
    terms, numbers = [(term("mlm"), seen)], {"mlm": {"weight": 0.5}}
    assert total(terms, numbers, SIZES, jnp.asarray(WEIGHTS)) == total(terms, numbers) == 1


@pytest.mark.exact
@pytest.mark.slow
def test_loss_and_gradient_are_the_same_on_two_devices_and_in_chunks():
    graph, params, _ = random_model(num_layers=1)
    given = params, batch(1), settings(size_weights=np.float32([1, 0.5]))
    one, several = (
        computed(compiled(graph, recipe(1, sizes=(32, 8), chunk_size=size), devices), *given)
        for devices, size in ((1, 0), (2, 3))
    )
    assert_same(several, one)


def test_sizes_are_compiled_and_weights_are_numbers_of_the_step():
    config = default_config()
    assert make_recipe(config, 1).sizes == () and "size_weights" not in make_settings(config, 1)
    config.matryoshka.dimensions, config.matryoshka.weights = ("8", "32"), ("0.5", "1")
    config.model.mlp = "none"
    validate(config)
    assert make_recipe(config, 1).sizes == (32, 8)
    assert make_settings(config, 1)["size_weights"].tolist() == [1.0, 0.5]


@pytest.fixture(scope="module")
def scored(tiny_bert, corpus, tmp_path_factory):
    """A run of a step at 32, which is the whole embedding, and 8."""
    workdir = tmp_path_factory.mktemp("matryoshka") / "run"
    fields = ["matryoshka.dimensions=32,8", "matryoshka.weights=1,0.5", "train.max_steps=1", "model.num_layers=1"]
    arguments = train_args(tiny_bert, corpus["txt"], corpus["dev"], workdir, "--config.model.mlp=none")
    done = call("train", *arguments, *(f"--config.{field}" for field in fields))
    assert done.returncode == 0, done.stderr
    return workdir, done.stdout


@pytest.mark.slow
def test_a_run_is_scored_at_each_size(scored, corpus, tmp_path):
    workdir, printed = scored
    result = json.loads((workdir / "result.json").read_text())
    assert "the first 8 elements: development scores" in printed and set(result["truncated"]) == {"8"}
    output = tmp_path / "scores.json"
    chosen = ["--model", workdir, "--data", corpus["dev"], "--dimensions", "32,8"]
    done = call("evaluate", *chosen, "--output", output)
    assert done.returncode == 0 and "\n8 elements: Spearman" in done.stdout, done.stderr
    found = json.loads(output.read_text())["truncated"]
    (task,) = (name for name, value in result.items() if isinstance(value, dict) and "spearman" in value)
    whole, short = (found[size][task]["spearman"] for size in ("32", "8"))
    assert whole == pytest.approx(result[task]["spearman"], abs=1e-3) and short != whole
    assert short == pytest.approx(result["truncated"]["8"][task]["spearman"], abs=1e-3)


@pytest.mark.slow
def test_an_export_says_its_size_to_sentence_transformers(scored, tmp_path):
    workdir, _ = scored
    export(workdir, tmp_path / "model", truncate_dim=8)
    sentences = ["a cat sat", "the small dog"]
    ours = SimCSE(tmp_path / "model")
    assert ours.dimension == 8
    np.testing.assert_array_equal(ours.encode(sentences), SimCSE(workdir, truncate_dim=8).encode(sentences))
    card = (tmp_path / "model" / "README.md").read_text()
    assert "8 numbers a sentence" in card and "Its first 32 or 8 numbers were trained" in card
    assert "| elements |" in card
    fields = json.loads((tmp_path / "model" / "config_sentence_transformers.json").read_text())
    assert fields["truncate_dim"] == 8


def test_sizes_that_do_not_fit_are_refused(trained, tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", "--config.model.mlp=none")
    refused(call("train", *args, "--config.matryoshka.dimensions=33"), "33 is more than the embedding's 32 elements")
    with pytest.raises(UserError, match="33: must be a whole number from 1 to 32"):
        export(trained, tmp_path / "model", truncate_dim=33)
    chosen = ["--model", tiny_bert, "--data", corpus["dev"]]
    for value in ("33", "8,8", "8,08", "1" * 5000):
        refused(call("evaluate", *chosen, "--dimensions", value), f"--dimensions {value[:9]}")
    refused(call("evaluate", *chosen, "--dimensions", "8", "--truncate-dim", "8"), "--truncate-dim: is for one size")
