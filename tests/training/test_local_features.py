"""IS-BERT's step and runs: convolutions before the pooler, and an objective of the anchors' token features."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model
from support.resuming import trained_and_resumed
from support.steps import BATCH, batch, recipe, settings, term

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config
from simcse_jax.devices.mesh import data_mesh
from simcse_jax.errors import UserError
from simcse_jax.models import parameters
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.jensen_shannon import jensen_shannon
from simcse_jax.objectives.rows import dropout_keys
from simcse_jax.runs import exporting
from simcse_jax.runs.loading import load_model
from simcse_jax.runs.state import convolutions_of, split_shapes
from simcse_jax.simcse import SimCSE
from simcse_jax.training.loss import make_loss
from simcse_jax.training.run import train_and_evaluate

CONVOLUTIONS = {"widths": ("1", "3"), "channels": 8, "activation": "relu"}
OBJECTIVE = {"jensen_shannon": {"weight": 1.0}}


@functools.cache
def small(dtype=jnp.float32):
    _, params, config = random_model(num_layers=1, with_head=False)
    run = {"model": {"mlp": "none", "convolutions": CONVOLUTIONS}, "objective": OBJECTIVE}
    shapes = split_shapes(config, run)[0]
    generator = np.random.default_rng(0)
    params = {name: generator.normal(0, 0.3, shape.shape).astype(np.float32) for name, shape in shapes.items()} | params
    config = dataclasses.replace(config, convolutions=convolutions_of(run["model"]))
    return build(config, with_head=False, dtype=dtype)[0], params


@functools.cache
def gradient(devices=1, dtype=jnp.float32, positive="shared", pooler="avg", **changes):
    graph, params = small(dtype)
    chosen = recipe(1, positive, objectives=(term("jensen_shannon"),), **changes)
    chosen = chosen._replace(pooler=pooler, use_head=False)
    function = jax.jit(make_loss(graph, chosen, data_mesh(jax.devices()[:devices])))
    (loss, _), values = function(params, jnp.int32(0), batch(1), settings(objective=OBJECTIVE))
    return float(loss), {name: np.asarray(value) for name, value in values.items()}


def assert_same(found, expected):
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    for name, value in expected[1].items():
        assert np.abs(found[1][name] - value).max() <= 1e-5 * max(np.abs(value).max(), 1e-3), name


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

    loss, values = jax.jit(jax.value_and_grad(direct))(params)
    expected = float(loss), {name: np.asarray(value) for name, value in values.items()}
    assert min(np.abs(values[f"convolutions.{n}.{part}"]).max() for n in (0, 1) for part in ("kernel", "bias")) > 1e-4
    assert_same(gradient(), expected)
    lengths = data["attention_mask"].sum(axis=1)
    together = int(np.add.reduceat(lengths, [0, 3, 4, 7]).max())  # on 2 devices, 3 examples at a time
    assert_same(gradient(2, chunk_size=3, most_tokens=(together,)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_the_gradient_is_the_same_on_any_number_of_devices(devices):
    assert_same(gradient(devices), gradient())


@pytest.mark.slow
def test_other_views_and_poolers_and_bfloat16():
    """Local features of one view find the embedding of another one; several masks are averaged."""
    for options in ({"positive": "independent"}, {"positive": "mean"}, {"positive": "off", "pooler": "cls"}):
        assert_same(gradient(4, chunk_size=1, **options), gradient(**options))
    assert gradient(positive="independent")[0] != gradient()[0]
    (loss, exact), (rounded_loss, rounded) = gradient(), gradient(dtype=jnp.bfloat16)
    assert rounded_loss == pytest.approx(loss, rel=0.02) and rounded_loss != loss
    one, other = (np.concatenate([values[name].ravel() for name in sorted(exact)]) for values in (exact, rounded))
    assert one @ other / np.linalg.norm(one) / np.linalg.norm(other) > 0.99


def make_config(model, corpus, **fields):
    config = default_config()
    chosen = {"model.init_from": str(model), "data.train": str(corpus["txt"]), "data.max_length": 16}
    chosen |= {"eval.data": str(corpus["dev"]), "train.batch_size": 8, "train.max_steps": 4, "train.log_every": 1}
    chosen |= {"train.learning_rate": 1e-3, "eval.every": 2, "parallel.devices": 2}
    chosen |= {"model.pooler": "avg", "model.mlp": "none", "views.positive": "shared"}
    chosen |= {f"model.convolutions.{name}": value for name, value in CONVOLUTIONS.items()}
    chosen |= {"objective.info_nce.weight": 0.0, "objective.jensen_shannon.weight": 1.0}
    config.update_from_flattened_dict(chosen | {name.replace("__", "."): value for name, value in fields.items()})
    validate(config)
    return config


def test_a_run_resumes_bit_for_bit_and_its_model_is_loaded_and_exported_with_its_convolutions(
    tiny_bert, corpus, tmp_path, capsys
):
    config = make_config(tiny_bert, corpus)
    trained_and_resumed(config, tmp_path)

    model = load_model(f"{tmp_path}/run@step=last")
    assert {name for name in model.params if name.startswith("convolutions.")} == {
        f"convolutions.{number}.{part}" for number in (0, 1) for part in ("kernel", "bias")
    }
    assert np.abs(model.params["convolutions.1.kernel"]).max() > 0.01
    exporting.export(tmp_path / "run", tmp_path / "exported", step="last")
    sentences = ["a cat", "the dog ran home"]
    ours = SimCSE(tmp_path / "exported")
    np.testing.assert_allclose(ours.encode(sentences), SimCSE(f"{tmp_path}/run@step=last").encode(sentences), atol=1e-6)
    assert ours.dimension == 16
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "16 numbers a sentence" in card and "pooler `avg` of convolutions of 1, 3 tokens" in card
    assert "encode(sentences, batch_size=1)" in card and "AutoModel" not in card

    capsys.readouterr()
    train_and_evaluate(
        make_config(tmp_path / "exported", corpus, train__max_steps=0, train__epochs=0), str(tmp_path / "scored")
    )
    scored = SimCSE(tmp_path / "scored")
    np.testing.assert_array_equal(scored.encode(sentences), ours.encode(sentences))
    assert "its own convolutions are trained further" in capsys.readouterr().out
    plain = make_config(
        tmp_path / "exported", corpus, train__max_steps=0, train__epochs=0, model__convolutions__widths=()
    )
    train_and_evaluate(plain, str(tmp_path / "plain"))
    assert "training uses the encoder only; dropped: its convolutions" in capsys.readouterr().out
    assert SimCSE(tmp_path / "plain").dimension == 32


def test_combinations_that_make_no_sense_are_refused(tiny_bert, corpus, tmp_path):
    cases = [
        ({"model__mlp": "train"}, "config.model.mlp='train': no head follows convolutions"),
        ({"model__pooler": "avg_top2"}, "config.model.pooler='avg_top2': reads several layers"),
        ({"model__convolutions__widths": ("2",)}, "must be odd whole numbers up to 99"),
        ({"model__convolutions__widths": ("one",)}, "must be odd whole numbers up to 99"),
        ({"train__max_steps": 0, "train__epochs": 0}, "nothing is trained, and .* has no such convolutions"),
    ]
    for fields, message in cases:
        with pytest.raises(UserError, match=message) as caught:
            train_and_evaluate(make_config(tiny_bert, corpus, **fields), str(tmp_path / "run"))
        assert "\n" not in str(caught.value)
