"""Modules of sentence-transformers after the pooler, in a step and in runs: `model.keep_modules`."""

import dataclasses
import functools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model, write_model
from support.layouts import LAYOUTS, write_layout
from support.models import drawn_modules, edit_json
from support.resuming import trained_and_resumed
from support.steps import BATCH, batch, recipe, settings

from simcse_jax.config.fields import default_config
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.write import write_model as write_folder
from simcse_jax.models.config import Dense, LayerNorm, Normalize
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs import exporting
from simcse_jax.runs.run_files import check_run
from simcse_jax.runs.state import split_shapes
from simcse_jax.runs.workdir import Workdir
from simcse_jax.simcse import SimCSE
from simcse_jax.training.loss import make_loss
from simcse_jax.training.run import train_and_evaluate
from simcse_jax.training.tuning import Data, of_model

MODULES = (
    *(Dense("Identity", 48, inputs=32, bias=False), Normalize(), Dense("Tanh", 20, residual=True, inputs=48)),
    LayerNorm(inputs=20),
)
NAMES = {f"modules.{name}" for name in ("0.kernel", "2.kernel", "2.bias", "2.residual", "3.scale", "3.bias")}


@functools.cache
def gradient(devices=1, **changes):
    _, params, config = random_model(num_layers=1)
    graph = build(dataclasses.replace(config, modules=MODULES), with_head=True)[0]
    function = jax.jit(make_loss(graph, recipe(1, **changes), data_mesh(jax.devices()[:devices])))
    (loss, _), values = function(params | drawn_modules(MODULES), jnp.int32(0), batch(1), settings())
    return float(loss), {name: np.asarray(value) for name, value in values.items()}


def test_two_devices_and_chunks_compute_what_one_does():
    (loss, expected), (found, values) = gradient(), gradient(2, chunk_size=2)
    assert found == pytest.approx(loss, rel=1e-5) and values.keys() == expected.keys()
    assert {name for name in expected if name.startswith("modules.")} == NAMES
    for name, value in expected.items():
        assert np.abs(values[name] - value).max() <= 1e-5 * max(np.abs(value).max(), 1e-3), name
        assert name not in NAMES or np.abs(value).max() > 1e-3, name


@pytest.mark.slow
def test_the_gradient_is_that_of_sentence_transformers(tmp_path):
    torch = pytest.importorskip("torch")
    from sentence_transformers import SentenceTransformer

    model = load(str(write_model(tmp_path / "source", "bert")))
    config, params = dataclasses.replace(model.config, modules=MODULES), {**model.params, **drawn_modules(MODULES)}
    (tmp_path / "model").mkdir()
    write_folder(dataclasses.replace(model, config=config, params=params, pooler="avg"), tmp_path / "model")
    data = batch(2)
    chosen = recipe(2)._replace(pooler="avg", use_head=False)
    function = jax.jit(make_loss(build(config, with_head=False)[0], chosen, data_mesh(jax.devices()[:1])))
    encoder = {name: value for name, value in params.items() if not name.startswith("head.")}
    (loss, _), ours = function(encoder, jnp.int32(0), data, settings(dropout=0.0))

    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu").eval()
    columns = [
        {name: torch.tensor(data[name][:, column].astype(np.int64)) for name in ("input_ids", "attention_mask")}
        for column in (0, 1)
    ]
    one, other = (torch.nn.functional.normalize(theirs(column)["sentence_embedding"]) for column in columns)
    value = torch.nn.functional.cross_entropy(one @ other.T / 0.05, torch.arange(BATCH))
    value.backward()
    assert float(loss) == pytest.approx(value.item(), rel=1e-5)
    named = {
        "modules.0.kernel": theirs[2].linear.weight.grad.T,
        "modules.2.kernel": theirs[4].linear.weight.grad.T,
        "modules.2.bias": theirs[4].linear.bias.grad,
        "modules.2.residual": theirs[4].residual.weight.grad.T,
        "modules.3.scale": theirs[5].norm.weight.grad,
        "modules.3.bias": theirs[5].norm.bias.grad,
    }
    assert named.keys() == NAMES
    words = theirs[0].auto_model.embeddings.word_embeddings.weight.grad
    for name, expected in {**named, "encoder.embeddings.word.embedding": words}.items():
        error = np.abs(np.asarray(ours[name]) - expected.numpy()).max() / expected.abs().max().item()
        assert error < 1e-4, (name, error)


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    """A tiny EmbeddingGemma: two dense modules after the mean of its tokens."""
    return write_layout(tmp_path_factory.mktemp("gemma") / "model", LAYOUTS["google/embeddinggemma-300m"])


def make_config(model, corpus, **fields):
    config = default_config()
    chosen = {"model.init_from": str(model), "data.train": str(corpus["txt"]), "data.max_length": 16}
    chosen |= {"eval.data": str(corpus["dev"]), "train.batch_size": 8, "train.max_steps": 4, "train.log_every": 1}
    chosen |= {"train.learning_rate": 1e-3, "eval.every": 2, "parallel.devices": 2, "model.keep_settings": True}
    chosen |= {"model.pooler": "avg", "model.mlp": "none", "model.dropout": 0.1}
    config.update_from_flattened_dict(chosen | {name.replace("__", "."): value for name, value in fields.items()})
    return config


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

    for field, value in {"kind": "Other", "size": "48", "activation": "tanh", "bias": 1, "more": 1}.items():
        run = json.loads((tmp_path / "run" / "run.json").read_text())
        run["model"]["modules"][0][field] = value
        with pytest.raises(UserError, match=r"run.json: damaged: model.modules is \[\{'kind': '"):
            check_run(run, "run.json")


def test_a_run_that_began_without_them_goes_on_without_them(gemma, corpus, tmp_path, capsys):
    config = make_config(gemma, corpus, model__keep_modules=False, train__max_steps=0, train__epochs=0)
    train_and_evaluate(config, str(tmp_path / "run"))
    assert "training uses the encoder only; dropped: the modules Dense to 48, Dense to 32\n" in capsys.readouterr().out
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert "modules" not in run["model"]
    del run["config"]["model"]["keep_modules"]  # as an earlier version left it
    edit_json(tmp_path / "run" / "run.json", **run)
    (tmp_path / "run" / "result.json").unlink()
    train_and_evaluate(make_config(gemma, corpus, train__max_steps=0, train__epochs=0), str(tmp_path / "run"))
    assert "dropped: the modules Dense to 48, Dense to 32\n" in capsys.readouterr().out
    assert SimCSE(tmp_path / "run").config.modules == ()


def test_they_belong_to_their_pooler_and_train_beside_lora(gemma, corpus, tmp_path, capsys):
    tuned = of_model(load(str(gemma)), Data(100, 2, "", "", [], ("question", "answer")))
    assert (tuned["model.pooler"], tuned["model.mlp"]) == ("avg", "none")
    fields = {"train__max_steps": 0, "train__epochs": 0}
    train_and_evaluate(make_config(gemma, corpus, model__pooler="max", **fields), str(tmp_path / "max"))
    assert "training uses the encoder only; dropped: the modules" in capsys.readouterr().out
    config = make_config(gemma, corpus, **fields, model__lora__rank=2)
    trained = split_shapes(load(str(gemma)).config, config)[0]
    others = {name for name in trained if not re.search(r"\.lora\.", name)}
    assert others == {"modules.0.kernel", "modules.1.kernel"}
