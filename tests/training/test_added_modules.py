import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model
from support.gradients import assert_same, compiled, computed
from support.layouts import LAYOUTS, write_layout
from support.models import drawn_modules
from support.resuming import trained_and_resumed
from support.run_configs import short_run
from support.steps import BATCH, batch, recipe, settings, term

from simcse_jax.choices import HEADS
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.models import parameters
from simcse_jax.models.config import Convolutions, Dense, LayerNorm, Normalize
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.jensen_shannon import jensen_shannon
from simcse_jax.objectives.rows import dropout_keys
from simcse_jax.runs import exporting
from simcse_jax.runs.loading import load_model
from simcse_jax.runs.state import ModelSpec, model_spec, split_shapes
from simcse_jax.runs.workdir import Workdir
from simcse_jax.simcse import SimCSE
from simcse_jax.training.run import read_inputs, train_and_evaluate
from simcse_jax.training.tuning import DataSummary, model_fields

MODULES = (
    *(Dense("Identity", 48, inputs=32, bias=False), Normalize(), Dense("Tanh", 20, residual=True, inputs=48)),
    LayerNorm(inputs=20),
)
NAMES = {f"modules.{name}" for name in ("0.kernel", "2.kernel", "2.bias", "2.residual", "3.scale", "3.bias")}
CONVOLUTIONS = {"widths": ("1", "3"), "channels": 8, "activation": "relu"}
JENSEN_SHANNON = {"jensen_shannon": {"weight": 1.0}}


def loss(devices=1, **changes):
    _, params, config = random_model(num_layers=1)
    graph = build(dataclasses.replace(config, modules=MODULES), with_head=True)[0]
    params = params | drawn_modules(MODULES)
    found = computed(compiled(graph, recipe(1, **changes), devices), params, batch(1), settings())
    return found[0], {name: value for name, value in found[1].items() if name.startswith("modules.")}


@pytest.mark.slow
def test_two_devices_and_chunks_compute_what_one_does():
    expected = loss()
    assert expected[1].keys() == NAMES and all(np.abs(value).max() > 1e-3 for value in expected[1].values())
    assert_same(loss(2, chunk_size=2), expected)


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
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
    again = make_config(f"{tmp_path}/run@step=last", corpus, train__max_steps=0, train__epochs=0)
    train_and_evaluate(again, str(tmp_path / "scored"))
    lines = [line for line in Workdir(tmp_path / "run").read_metrics() if line["step"] == 4]
    result = Workdir(tmp_path / "scored").read_result()
    (during,) = {value for line in lines for name, value in line.items() if name.startswith("eval/")}
    (after,) = (value["spearman"] for value in result.values() if isinstance(value, dict))
    assert after == pytest.approx(during, abs=1e-4)


def test_a_run_may_be_without_them_they_belong_to_their_pooler_and_train_beside_lora(gemma, corpus, capsys):
    assert read_inputs(make_config(gemma, corpus, model__keep_modules=False)).model.config.modules == ()
    assert "training uses the encoder only; dropped: the modules Dense to 48, Dense to 32\n" in capsys.readouterr().out
    tuned = model_fields(load(str(gemma)), DataSummary(100, 2, "", "", [], ("question", "answer")))
    assert (tuned["model.pooler"], tuned["model.mlp"]) == ("avg", "none")
    assert read_inputs(make_config(gemma, corpus, model__pooler="max")).model.config.modules == ()
    assert read_inputs(make_config(gemma, corpus)).model.config.modules != ()
    trained = split_shapes(load(str(gemma)).config, model_spec(make_config(gemma, corpus, model__lora__rank=2)))[0]
    assert {name for name in trained if ".lora." not in name} == {"modules.0.kernel", "modules.1.kernel"}


@functools.cache
def small():
    _, params, config = random_model(num_layers=1, with_head=False)
    added = Convolutions((1, 3), 8, "relu")
    shapes = split_shapes(config, ModelSpec(head=HEADS["none"], convolutions=added, objectives=JENSEN_SHANNON))[0]
    generator = np.random.default_rng(0)
    params = {name: generator.normal(0, 0.3, shape.shape).astype(np.float32) for name, shape in shapes.items()} | params
    config = dataclasses.replace(config, convolutions=added)
    return build(config, with_head=False)[0], params


@pytest.mark.slow
def test_one_encoding_is_local_and_global_and_devices_chunks_and_padding_change_nothing():
    """Written down without devices: the mean of the convolutions' features is the sentence."""
    graph, params = small()
    data = {name: array[:, 0] for name, array in batch(1).items() if name != "index"}

    def direct(params):
        model = parameters.merge(graph, params)
        keys = dropout_keys(3, 0, jnp.arange(BATCH), [0])[0]
        (local,) = model.token_features(**data, dropout_keys=keys)
        mask = data["attention_mask"][:, :, None]
        sentences = jnp.sum(local * mask, 1) / jnp.sum(mask, 1)
        return jensen_shannon(local, data["attention_mask"], sentences, jnp.arange(BATCH), lambda x: x)

    lengths = data["attention_mask"].sum(axis=1)
    together = int(np.add.reduceat(lengths, [0, 3, 4, 7]).max())  # on 2 devices, 3 examples at a time
    chosen = recipe(1, "shared", objectives=(term("jensen_shannon"),), pooler="avg", use_head=False)
    chosen = chosen._replace(chunk_size=3, most_tokens=(together,))
    found = computed(compiled(graph, chosen, 2), params, batch(1), settings(objective=JENSEN_SHANNON))
    loss, values = jax.jit(jax.value_and_grad(direct))(params)
    assert min(np.abs(values[f"convolutions.{n}.{part}"]).max() for n in (0, 1) for part in ("kernel", "bias")) > 1e-4
    assert_same(found, (float(loss), {name: np.asarray(value) for name, value in values.items()}))


def with_convolutions(model, corpus, **fields):
    chosen = {"model__pooler": "avg", "model__mlp": "none", "views__positive": "shared"}
    chosen |= {f"model__convolutions__{name}": value for name, value in CONVOLUTIONS.items()}
    chosen |= {"objective__info_nce__weight": 0.0, "objective__jensen_shannon__weight": 1.0}
    return short_run(model, corpus["txt"], corpus["dev"], **chosen | fields)


@pytest.mark.slow
def test_a_model_is_loaded_exported_and_trained_further_with_its_convolutions(tiny_bert, corpus, tmp_path, capsys):
    train_and_evaluate(with_convolutions(tiny_bert, corpus), str(tmp_path / "run"))
    model = load_model(f"{tmp_path}/run@step=last")
    own = {f"convolutions.{number}.{part}" for number in (0, 1) for part in ("kernel", "bias")}
    assert {name for name in model.params if name.startswith("convolutions.")} == own
    assert np.abs(model.params["convolutions.1.kernel"]).max() > 0.01
    exporting.export(tmp_path / "run", tmp_path / "exported", step="last")
    sentences = ["a cat", "the dog ran home"]
    ours = SimCSE(tmp_path / "exported")
    np.testing.assert_allclose(ours.encode(sentences), SimCSE(f"{tmp_path}/run@step=last").encode(sentences), atol=1e-6)
    assert ours.dimension == 16
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "16 numbers a sentence" in card and "pooler `avg` of convolutions of 1, 3 tokens" in card
    assert "encode(sentences, batch_size=1)" in card and "AutoModel" not in card
    nothing = {"train__max_steps": 0, "train__epochs": 0}
    train_and_evaluate(with_convolutions(tmp_path / "exported", corpus, **nothing), str(tmp_path / "scored"))
    np.testing.assert_array_equal(SimCSE(tmp_path / "scored").encode(sentences), ours.encode(sentences))
    assert "its own convolutions are trained further" in capsys.readouterr().out
    plain = with_convolutions(tmp_path / "exported", corpus, **nothing, model__convolutions__widths=())
    train_and_evaluate(plain, str(tmp_path / "plain"))
    assert "training uses the encoder only; dropped: its convolutions" in capsys.readouterr().out
    assert SimCSE(tmp_path / "plain").dimension == 32


def test_convolutions_that_make_no_sense_are_refused(tiny_bert, corpus):
    for fields, named in (
        ({"model__mlp": "train"}, "config.model.mlp='train'"),
        ({"model__pooler": "avg_top2"}, "config.model.pooler='avg_top2'"),
        ({"model__convolutions__widths": ("2",)}, "model.convolutions.widths=.*odd whole numbers up to 99"),
        ({"train__max_steps": 0, "train__epochs": 0}, "nothing is trained, and .* has no such convolutions"),
    ):
        with pytest.raises(UserError, match=named):
            read_inputs(with_convolutions(tiny_bert, corpus, **fields))
