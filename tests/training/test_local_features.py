"""IS-BERT's step and runs: convolutions before the pooler, and an objective of the anchors' token features."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model
from support.gradients import assert_same, compiled, computed
from support.run_configs import short_run
from support.steps import BATCH, batch, recipe, settings, term

from simcse_jax.errors import UserError
from simcse_jax.models import parameters
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.jensen_shannon import jensen_shannon
from simcse_jax.objectives.rows import dropout_keys
from simcse_jax.runs import exporting
from simcse_jax.runs.loading import load_model
from simcse_jax.runs.state import convolutions_of, split_shapes
from simcse_jax.simcse import SimCSE
from simcse_jax.training.inputs import read_inputs
from simcse_jax.training.run import train_and_evaluate

CONVOLUTIONS = {"widths": ("1", "3"), "channels": 8, "activation": "relu"}
OBJECTIVE = {"jensen_shannon": {"weight": 1.0}}


@functools.cache
def small():
    _, params, config = random_model(num_layers=1, with_head=False)
    run = {"model": {"mlp": "none", "convolutions": CONVOLUTIONS}, "objective": OBJECTIVE}
    shapes = split_shapes(config, run)[0]
    generator = np.random.default_rng(0)
    params = {name: generator.normal(0, 0.3, shape.shape).astype(np.float32) for name, shape in shapes.items()} | params
    config = dataclasses.replace(config, convolutions=convolutions_of(run["model"]))
    return build(config, with_head=False)[0], params


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
    found = computed(compiled(graph, chosen, 2), params, batch(1), settings(objective=OBJECTIVE))
    loss, values = jax.jit(jax.value_and_grad(direct))(params)
    assert min(np.abs(values[f"convolutions.{n}.{part}"]).max() for n in (0, 1) for part in ("kernel", "bias")) > 1e-4
    assert_same(found, (float(loss), {name: np.asarray(value) for name, value in values.items()}))


def make_config(model, corpus, **fields):
    chosen = {"model__pooler": "avg", "model__mlp": "none", "views__positive": "shared"}
    chosen |= {f"model__convolutions__{name}": value for name, value in CONVOLUTIONS.items()}
    chosen |= {"objective__info_nce__weight": 0.0, "objective__jensen_shannon__weight": 1.0}
    return short_run(model, corpus["txt"], corpus["dev"], **chosen | fields)


@pytest.mark.slow
def test_a_run_s_model_is_loaded_exported_and_trained_further_with_its_convolutions(
    tiny_bert, corpus, tmp_path, capsys
):
    train_and_evaluate(make_config(tiny_bert, corpus), str(tmp_path / "run"))
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
    train_and_evaluate(make_config(tmp_path / "exported", corpus, **nothing), str(tmp_path / "scored"))
    np.testing.assert_array_equal(SimCSE(tmp_path / "scored").encode(sentences), ours.encode(sentences))
    assert "its own convolutions are trained further" in capsys.readouterr().out
    plain = make_config(tmp_path / "exported", corpus, **nothing, model__convolutions__widths=())
    train_and_evaluate(plain, str(tmp_path / "plain"))
    assert "training uses the encoder only; dropped: its convolutions" in capsys.readouterr().out
    assert SimCSE(tmp_path / "plain").dimension == 32


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"model__mlp": "train"}, "config.model.mlp='train'"),
        ({"model__pooler": "avg_top2"}, "config.model.pooler='avg_top2'"),
        ({"model__convolutions__widths": ("2",)}, "model.convolutions.widths=.*odd whole numbers up to 99"),
        ({"model__convolutions__widths": ("one",)}, "model.convolutions.widths=.*odd whole numbers up to 99"),
        ({"train__max_steps": 0, "train__epochs": 0}, "nothing is trained, and .* has no such convolutions"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(fields, named, tiny_bert, corpus):
    with pytest.raises(UserError, match=named):
        read_inputs(make_config(tiny_bert, corpus, **fields))
