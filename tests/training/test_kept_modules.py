"""Modules of sentence-transformers after the pooler, in a step and in runs: `model.keep_modules`."""

import dataclasses
import json

import numpy as np
import pytest
from support import random_model
from support.gradients import assert_same, compiled, computed
from support.layouts import LAYOUTS, write_layout
from support.models import drawn_modules
from support.resuming import trained_and_resumed
from support.run_configs import short_run
from support.steps import batch, recipe, settings

from simcse_jax.huggingface.load import load
from simcse_jax.models.config import Dense, LayerNorm, Normalize
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs import exporting
from simcse_jax.runs.state import split_shapes
from simcse_jax.runs.workdir import Workdir
from simcse_jax.simcse import SimCSE
from simcse_jax.training.inputs import read_inputs
from simcse_jax.training.run import train_and_evaluate
from simcse_jax.training.tuning import Data, of_model

MODULES = (
    *(Dense("Identity", 48, inputs=32, bias=False), Normalize(), Dense("Tanh", 20, residual=True, inputs=48)),
    LayerNorm(inputs=20),
)
NAMES = {f"modules.{name}" for name in ("0.kernel", "2.kernel", "2.bias", "2.residual", "3.scale", "3.bias")}


def loss(devices=1, **changes):
    """And the names of what it depends on."""
    _, params, config = random_model(num_layers=1)
    graph = build(dataclasses.replace(config, modules=MODULES), with_head=True)[0]
    params = params | drawn_modules(MODULES)
    found = computed(compiled(graph, recipe(1, **changes), devices), params, batch(1), settings())
    return found[0], {name: value for name, value in found[1].items() if name.startswith("modules.")}


def test_two_devices_and_chunks_compute_what_one_does():
    expected = loss()
    assert expected[1].keys() == NAMES and all(np.abs(value).max() > 1e-3 for value in expected[1].values())
    assert_same(loss(2, chunk_size=2), expected)


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    """A tiny EmbeddingGemma: two dense modules after the mean of its tokens."""
    return write_layout(tmp_path_factory.mktemp("gemma") / "model", LAYOUTS["google/embeddinggemma-300m"])


def make_config(model, corpus, **fields):
    chosen = {"model__keep_settings": True, "model__pooler": "avg", "model__mlp": "none", "model__dropout": 0.1}
    return short_run(model, corpus["txt"], corpus["dev"], **chosen | fields)


@pytest.mark.slow
def test_a_run_trains_them_resumes_and_is_scored_loaded_and_exported_with_them(gemma, corpus, tmp_path, capsys):
    params = trained_and_resumed(make_config(gemma, corpus), tmp_path)
    said = capsys.readouterr().out
    assert "its modules Dense to 48, Dense to 32 are trained further" in said and "dropped" not in said
    start = load(str(gemma))
    for name in ("modules.0.kernel", "modules.1.kernel"):
        assert 1e-4 < np.abs(params[name] - start.params[name]).max() < 0.1, name
    model, texts = SimCSE(f"{tmp_path}/run@step=last"), ["the cat do", "a dog ran"]
    assert model.config.modules == start.config.modules and model.normalize
    exporting.export(tmp_path / "run", tmp_path / "exported", step="last")
    np.testing.assert_allclose(SimCSE(tmp_path / "exported").encode(texts), model.encode(texts), atol=1e-6)
    assert np.abs(model.encode(texts) - SimCSE(gemma).encode(texts)).max() > 1e-4
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "then Dense to 48, Dense to 32" in card and "AutoModel" not in card

    # What scored the run is what is loaded.
    train_and_evaluate(
        make_config(f"{tmp_path}/run@step=last", corpus, train__max_steps=0, train__epochs=0), str(tmp_path / "scored")
    )
    lines = [line for line in Workdir(tmp_path / "run").read_metrics() if line["step"] == 4]
    result = Workdir(tmp_path / "scored").read_result()
    (during,) = {value for line in lines for name, value in line.items() if name.startswith("eval/")}
    (after,) = (value["spearman"] for value in result.values() if isinstance(value, dict))
    assert after == pytest.approx(during, abs=1e-4)


def test_a_run_may_be_without_them(gemma, corpus, tmp_path, capsys):
    config = make_config(gemma, corpus, model__keep_modules=False, train__max_steps=0, train__epochs=0)
    train_and_evaluate(config, str(tmp_path / "run"))
    assert "training uses the encoder only; dropped: the modules Dense to 48, Dense to 32\n" in capsys.readouterr().out
    assert "modules" not in json.loads((tmp_path / "run" / "run.json").read_text())["model"]
    assert SimCSE(tmp_path / "run").config.modules == ()


def test_they_belong_to_their_pooler_and_train_beside_lora(gemma, corpus):
    tuned = of_model(load(str(gemma)), Data(100, 2, "", "", [], ("question", "answer")))
    assert (tuned["model.pooler"], tuned["model.mlp"]) == ("avg", "none")
    assert read_inputs(make_config(gemma, corpus, model__pooler="max")).model.config.modules == ()
    assert read_inputs(make_config(gemma, corpus)).model.config.modules != ()
    trained = split_shapes(load(str(gemma)).config, make_config(gemma, corpus, model__lora__rank=2))[0]
    assert {name for name in trained if ".lora." not in name} == {"modules.0.kernel", "modules.1.kernel"}
