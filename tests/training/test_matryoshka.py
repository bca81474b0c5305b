"""Runs and steps at several sizes of the embeddings."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import call, random_model, refused, train_args
from support.checks import random
from support.steps import INFO_NCE, alone, batch, recipe, settings, term

from simcse_jax import SimCSE
from simcse_jax.config import default_config
from simcse_jax.config.checks import validate
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.objectives.objective import total
from simcse_jax.training.loss import make_loss
from simcse_jax.training.setup import make_recipe, make_settings

SIZES, WEIGHTS = (8, 5, 2), np.float32([1, 0.5, 2])


def embedded(first, second, **fields):
    return alone({"anchor": jnp.asarray(first), "positive": jnp.asarray(second)}, **fields)


@pytest.mark.parametrize("name", ["info_nce", "cosent"])
def test_is_sentence_transformers_loss(name):
    """MatryoshkaLoss around two losses of it."""
    torch = pytest.importorskip("torch")
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")

    class Given(torch.nn.Module):
        """A model that returns the embeddings that it is given."""

        def forward(self, features):
            return dict(features)

        def get_embedding_dimension(self):
            return 8

    rows, scores = random(2, 6, 8), np.float32([0, 1, 0.5, 0.5, 0.3, 0.9])
    model = Given()
    inner = losses.CoSENTLoss(model) if name == "cosent" else losses.MultipleNegativesRankingLoss(model)
    peer = losses.MatryoshkaLoss(model, inner, list(SIZES), WEIGHTS.tolist())
    first, second = (torch.tensor(x, requires_grad=True) for x in rows)
    features = [{"sentence_embedding": x} for x in (first, second)]
    expected = peer(features, torch.tensor(scores))
    expected.backward()

    numbers = {name: {"weight": 1.0, "temperature": 0.05}}
    numbers[name] |= {"hard_negative_weight": 1.0} if name == "info_nce" else {}
    options = (("symmetric", False), ("similarity", "cosine")) if name == "info_nce" else ()

    def ours(rows):
        seen = embedded(*rows, score=jnp.asarray(scores))
        return total([(term(name, options), seen)], numbers, SIZES, jnp.asarray(WEIGHTS))

    value, gradients = jax.jit(jax.value_and_grad(ours))(tuple(rows))
    assert float(value) == pytest.approx(float(expected.detach()), rel=1e-5)
    for gradient, theirs in zip(gradients, (first.grad.numpy(), second.grad.numpy()), strict=True):
        np.testing.assert_allclose(gradient, theirs, atol=1e-5 * np.abs(theirs).max())


def test_losses_of_tokens_count_once():
    seen = [(term("mlm"), embedded(*random(2, 6, 8), tokens=(jnp.full(6, 2.0), jnp.full(6, 1))))]
    numbers = {"mlm": {"weight": 0.5}}
    assert total(seen, numbers, SIZES, jnp.asarray(WEIGHTS)) == total(seen, numbers) == 1


@pytest.mark.exact
@pytest.mark.parametrize(("devices", "chunk_size"), [(2, 3), pytest.param(8, 0, marks=pytest.mark.slow)])
def test_the_gradient_is_the_same_on_any_number_of_devices_and_in_chunks(devices, chunk_size):
    graph, params, _ = random_model(num_layers=1)
    results = []
    for count, size in ((1, 0), (devices, chunk_size)):
        chosen = recipe(1, objectives=(INFO_NCE,), sizes=(32, 8), chunk_size=size)
        function = jax.jit(make_loss(graph, chosen, data_mesh(jax.devices()[:count])))
        numbers = settings() | {"size_weights": jnp.float32([1, 0.5])}
        results.append(function(params, jnp.int32(0), batch(1), numbers))
    ((expected, _), gradient), ((found, _), other) = results
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for name, value in gradient.items():
        scale = max(np.abs(value).max(), 1e-3)
        assert np.abs(np.asarray(other[name]) - np.asarray(value)).max() <= 1e-5 * scale, name


def test_sizes_are_compiled_and_weights_are_numbers_of_the_step():
    config = default_config()
    assert make_recipe(config, 1).sizes == () and "size_weights" not in make_settings(config, 1)
    config.matryoshka.dimensions, config.matryoshka.weights = ("8", "32"), ("0.5", "1")
    config.model.mlp = "none"
    validate(config)
    assert make_recipe(config, 1).sizes == (32, 8)
    assert make_settings(config, 1)["size_weights"].tolist() == [1.0, 0.5]


@pytest.fixture(scope="module")
def trained(tiny_bert, corpus, tmp_path_factory):
    """A run of two steps at 32, which is the whole embedding, and 8."""
    workdir = tmp_path_factory.mktemp("matryoshka") / "run"
    fields = ["--config.matryoshka.dimensions=32,8", "--config.matryoshka.weights=1,0.5", "--config.train.max_steps=2"]
    fields += ["--config.model.mlp=none"]
    done = call("train", *train_args(tiny_bert, corpus["txt"], corpus["dev"], workdir, *fields))
    assert done.returncode == 0, done.stderr
    return workdir, done.stdout


def test_a_run_is_scored_at_each_size(trained, corpus, tmp_path):
    workdir, printed = trained
    result = json.loads((workdir / "result.json").read_text())
    assert "the first 8 elements: development scores" in printed and set(result["truncated"]) == {"8"}
    output = tmp_path / "scores.json"
    chosen = ["--model", workdir, "--data", corpus["dev"], "--dimensions", "32,8"]
    done = call("evaluate", *chosen, "--output", output)
    assert done.returncode == 0 and "\n8 elements: Spearman" in done.stdout, done.stderr
    found = json.loads(output.read_text())["truncated"]
    task = next(name for name, value in result.items() if isinstance(value, dict) and "spearman" in value)
    assert found["32"][task]["spearman"] == pytest.approx(result[task]["spearman"], abs=1e-3)
    assert found["8"][task]["spearman"] == pytest.approx(result["truncated"]["8"][task]["spearman"], abs=1e-3)
    assert found["8"][task]["spearman"] != found["32"][task]["spearman"]


def test_an_export_says_its_size_to_sentence_transformers(trained, tmp_path):
    workdir, _ = trained
    done = call("export", "--workdir", workdir, "--output", tmp_path / "model", "--truncate-dim", "8")
    assert done.returncode == 0, done.stderr
    sentences = ["a cat sat", "the small dog"]
    ours = SimCSE(tmp_path / "model")
    assert ours.dimension == 8
    np.testing.assert_array_equal(ours.encode(sentences), SimCSE(workdir, truncate_dim=8).encode(sentences))
    card = (tmp_path / "model" / "README.md").read_text()
    assert "8 numbers a sentence" in card and "Its first 32 or 8 numbers were trained" in card
    assert "| elements |" in card
    peer = pytest.importorskip("sentence_transformers").SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert peer.get_embedding_dimension() == 8
    np.testing.assert_allclose(peer.encode(sentences), ours.encode(sentences), atol=1e-5)


def test_sizes_that_do_not_fit_are_refused(trained, tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run", "--config.model.mlp=none")
    refused(call("train", *args, "--config.matryoshka.dimensions=33"), "33 is more than the embedding's 32 elements")
    assert not (tmp_path / "run").exists()
    done = call("export", "--workdir", trained[0], "--output", tmp_path / "model", "--truncate-dim", "33")
    refused(done, "--truncate-dim 33: must be a whole number from 1 to 32")
    assert not (tmp_path / "model").exists()
    chosen = ["--model", tiny_bert, "--data", corpus["dev"]]
    for value, message in (
        ("33", "--dimensions 33: must be"),
        ("8,8", "each once"),
        ("8,08", "must be whole numbers"),
        ("1" * 5000, "must be"),
    ):
        refused(call("evaluate", *chosen, "--dimensions", value), message)
    refused(call("evaluate", *chosen, "--dimensions", "8", "--truncate-dim", "8"), "--truncate-dim: is for one size")
