import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model
from support.gradients import assert_same, compiled, computed
from support.steps import batch, mixed_batch, recipe, replaced_tokens_settings, replaced_tokens_step, settings, term

from simcse_jax.choices import HEADS
from simcse_jax.models.masking import Masking
from simcse_jax.models.parameters import WORD_EMBEDDING
from simcse_jax.objectives.mlm import MaskedLM
from simcse_jax.objectives.replaced_token_detection import ReplacedTokenDetection
from simcse_jax.objectives.rows import Rows
from simcse_jax.runs.state import ModelSpec, split_shapes
from simcse_jax.training.loss import make_networks

OBJECTIVE = MaskedLM()

pytestmark = pytest.mark.exact

MASKING = Masking(mask_id=3, special_ids=(0, 1, 2, 3))
# On 2 devices 3 examples at a time, without padding.
SPLIT = [(2, {"chunk_size": 3, "most_tokens": (37,)}), (8, {})]
KERNEL = "discriminator.encoder.layers.0.output.kernel"


@pytest.mark.slow
def test_masked_tokens_are_those_of_the_columns_that_are_there():
    graph, params, config = random_model(num_layers=1)
    shapes = split_shapes(config, ModelSpec(head=HEADS["none"], objectives={"mlm": {"weight": 1.0}}))[0]
    params = {name: np.ones(shape.shape, np.float32) for name, shape in shapes.items()} | params
    data = mixed_batch()
    blank = {name: x for name, x in data.items() if name != "present"}  # nothing to mask where nothing is
    blank["attention_mask"] = data["attention_mask"] * data["present"][:, :, None]

    @jax.jit
    def losses(data):
        chosen = recipe(3, objectives=(term("mlm"),), masking=MASKING)
        numbers = settings(objective={"mlm": {"weight": 1.0}})
        rows = Rows(data, jnp.int32(0), numbers, masking=MASKING, words=config.vocab_size)
        return OBJECTIVE.tokens(make_networks(graph, chosen, params, {}, 8).tokens(chosen.objectives[0], rows))

    (sums, counts), (expected_sums, expected_counts) = losses(data), losses(blank)
    np.testing.assert_array_equal(counts, expected_counts)
    np.testing.assert_allclose(sums, expected_sums, rtol=1e-5)
    assert 0 < np.sum(counts) < np.sum(losses({name: x for name, x in data.items() if name != "present"})[1])


@functools.cache
def function_of(devices, **changes):
    graph, params, frozen, recipe = replaced_tokens_step(**changes)
    return compiled(graph, recipe, devices), params, frozen


def diffcse(devices=1, weight=0.5, **changes):
    function, params, frozen = function_of(devices, **changes)
    return computed(function, params, batch(1), replaced_tokens_settings(weight), frozen)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "changes"), SPLIT)
def test_diffcse_is_the_same_on_any_number_of_devices_and_in_chunks(devices, changes):
    lengths = batch(1)["attention_mask"].sum(axis=(1, 2))
    assert max(np.add.reduceat(lengths, [0, 3, 4, 7])) <= 37 < 3 * 16
    expected = diffcse()
    parts = {name.split(".")[0] for name, value in expected[1].items() if np.abs(value).max() > 1e-6}
    assert parts == {"encoder", "projector", "discriminator", "replaced_token_detection"}
    assert_same(diffcse(devices, **changes), expected)
    # Batch norm takes it away, and no rounding is left.
    assert not expected[1]["encoder.layers.0.output_norm.bias"].any()
    if "chunk_size" in changes:  # words that are drawn from the generator
        expected = diffcse(reading="paper")
        assert abs(expected[0] - diffcse()[0]) > 1e-3
        assert_same(diffcse(devices, reading="paper", **changes), expected)


@pytest.mark.slow
def test_the_gradient_of_replaced_tokens_reaches_the_encoder_through_its_embedding_alone(monkeypatch):
    """Without the embeddings' gradient the encoder has that of the contrast alone; the generator has none at all."""
    contrast, both = diffcse(weight=0.0)[1], diffcse()[1]
    name = "encoder.layers.0.output.kernel"
    assert np.abs(both[name] - contrast[name]).max() > 1e-3 * np.abs(contrast[name]).max()
    original = ReplacedTokenDetection.second_pass
    cut = lambda *args: original(*args[:-1], jax.lax.stop_gradient(args[-1]))  # noqa: E731
    monkeypatch.setattr(ReplacedTokenDetection, "second_pass", cut)
    function_of.cache_clear()
    found = diffcse()[1]
    function_of.cache_clear()
    for name, value in found.items():
        if name.startswith(("encoder.", "projector.")):
            np.testing.assert_allclose(value, contrast[name], atol=1e-6 * max(1, np.abs(value).max()), err_msg=name)
    assert np.abs(found[KERNEL]).max() > 1e-4
    assert not any(name.startswith("language_model.") for name in both)


@functools.cache
def drawn_by(reading):
    graph, params, frozen, recipe = replaced_tokens_step(reading=reading)

    @jax.jit
    def drawn(data, numbers):
        rows = Rows(data, jnp.int32(0), numbers, (), True, recipe.masking, len(params[WORD_EMBEDDING]))
        networks = make_networks(graph, recipe, params, frozen, 8)
        return recipe.objectives[1].objective.drawn(networks.tokens(recipe.objectives[1], rows))

    return drawn


def replaced(rows=None, reading="released", **changes):
    data = {name: x if rows is None else x[rows] for name, x in batch(1).items()}
    return np.asarray(drawn_by(reading)(data, replaced_tokens_settings() | changes))


@pytest.mark.slow
def test_each_member_has_draws_of_its_own_which_belong_to_its_example_in_either_reading():
    ids, mask = (batch(1)[name][:, 0] for name in ("input_ids", "attention_mask"))
    found = replaced()
    np.testing.assert_array_equal(found[:, :, 0], np.stack([ids[:, 0]] * 2, axis=1))
    for member in (0, 1):
        np.testing.assert_array_equal(found[:, member][mask == 0], ids[mask == 0])
    assert (found[:, 0] != found[:, 1]).sum() > 5
    assert ((found != ids[:, None]) & (mask[:, None] > 0)).mean() > 0.1
    np.testing.assert_array_equal(replaced(rows=slice(2, 5)), found[2:5])
    assert (replaced(seed=jnp.uint32(4)) != found).any()
    assert (replaced(dropout=jnp.float32(0.0)) != found).any()  # the generator's own dropout is on
    # In the paper's reading masked tokens alone are replaced, by words of the generator's distribution.
    numbers = replaced_tokens_settings()["objective"]
    numbers["replaced_token_detection"]["masking_rate"] = jnp.float32(1.0)
    found, usual = replaced(reading="paper", objective=numbers), replaced(reading="paper")
    special = (mask == 0) | (ids < 4)
    for member in (0, 1):
        np.testing.assert_array_equal(found[:, member][special], ids[special])
    assert (found != ids[:, None])[~np.stack([special] * 2, axis=1)].mean() > 0.9
    changed = (usual != ids[:, None]) & (mask[:, None] > 0)
    assert 0.1 < changed[~np.stack([special] * 2, axis=1)].mean() < 0.5
    np.testing.assert_array_equal(replaced(rows=slice(2, 5), reading="paper"), usual[2:5])


@pytest.mark.slow
def test_bfloat16_is_close_and_without_a_projector_the_embedding_itself_is_the_first_token():
    expected, (value, gradient) = diffcse(), diffcse(dtype=jnp.bfloat16)
    assert value == pytest.approx(expected[0], rel=0.05) and value != expected[0]
    found, reference = gradient[KERNEL].ravel(), expected[1][KERNEL].ravel()
    assert found.dtype == np.float32
    assert found @ reference / np.linalg.norm(found) / np.linalg.norm(reference) > 0.98
    found = diffcse(projector=False)[1]
    assert not any(name.startswith("projector.") for name in found)
    assert np.abs(found[KERNEL]).max() > 1e-4
