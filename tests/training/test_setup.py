from types import SimpleNamespace

import jax
import numpy as np
import pytest

from simcse_jax.config.fields import default_config
from simcse_jax.data.batches import Batches, Corpus
from simcse_jax.devices.mesh import place
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.runs.loading import load_model
from simcse_jax.simcse import SimCSE
from simcse_jax.training.setup import make_setup


@pytest.fixture
def inputs(tiny_bert):
    model = load_model(str(tiny_bert))
    given = {"devices": jax.devices()[:2], "evaluation": None, "analysis": None, "corpus": None}
    tokenizer = Tokenizer(model.folder, model.config)
    return SimpleNamespace(
        model=model,
        tokenizer=tokenizer,
        num_columns=1,
        language_model=None,
        total_steps=0,
        generator=None,
        adapter=None,
        **given,
    )


def config(**fields):
    made = default_config()
    made.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return made


@pytest.mark.parametrize(("mlp", "trained", "scored"), [("train", 1, 0), ("always", 1, 1), ("none", 0, 0)])
def test_there_is_a_head_if_the_config_says_so(mlp, trained, scored, inputs):
    made = config(model__mlp=mlp)
    setup = make_setup(made, inputs)
    assert ("head.kernel" in setup.state(made).params) == bool(trained) == setup.recipe.use_head
    assert setup.embed.use_head == bool(scored)


def test_it_encodes_like_the_loaded_model(inputs, tiny_bert):
    made = config(model__mlp="none", train__dtype="bfloat16")
    setup = make_setup(made, inputs)
    embed = setup.embed.with_params(jax.device_put(setup.state(made).params, setup.replicated))
    texts = ["the cat sat", "a dog ran home"]
    np.testing.assert_allclose(embed(texts), SimCSE(str(tiny_bert), pooler="cls").encode(texts), atol=1e-5)


def test_a_process_with_all_devices_leaves_placing_to_the_step_s_dispatch(inputs, monkeypatch):
    made = config(train__batch_size=4)
    setup = make_setup(made, inputs)
    corpus = Corpus(np.arange(96, dtype=np.int32).reshape(12, 1, 8), np.ones((12, 1, 8), np.int8))
    batches = Batches(corpus, 4, seed=0)
    read, by_example = setup.read(batches, 1), setup.by_example
    assert {type(value) for value in read.values()} == {np.ndarray}
    with monkeypatch.context() as patch:  # as one of several processes
        patch.setitem(vars(setup), "by_example", SimpleNamespace(is_fully_addressable=False))
        patch.setattr("simcse_jax.training.setup.place", lambda read, rows, _: place(read, rows, by_example))
        placed = setup.read(batches, 1)
    for name, value in placed.items():
        assert value.sharding == by_example
        np.testing.assert_array_equal(value, read[name])


def test_runs_of_one_setup_differ_in_their_numbers(inputs):
    first, second = config(seed=1), config(seed=2, train__learning_rate=0.5)
    setup = make_setup(first, inputs)
    assert setup.settings(first)["learning_rate"] != setup.settings(second)["learning_rate"]
    assert setup.settings(first)["total_steps"] == 1  # nothing is divided by 0
    one, other = (setup.state(each).params["head.kernel"] for each in (first, second))
    assert not np.array_equal(one, other)
