import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support import CONFIGS, assert_arrays, random_model, write_model
from support.gradients import assert_same, compiled, computed
from support.run_configs import short_run
from support.steps import batch, mixed_batch, recipe, replaced_tokens_settings, replaced_tokens_step, settings, term

from simcse_jax.choices import HEADS
from simcse_jax.huggingface.weight_names import head_tensors, to_tensors
from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.decoders import both_ways
from simcse_jax.models.masking import Masking, mask_tokens
from simcse_jax.models.parameters import WORD_EMBEDDING
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.mlm import PREFIX, MaskedLM
from simcse_jax.objectives.replaced_token_detection import ReplacedTokenDetection
from simcse_jax.objectives.rows import Rows, dropout_keys
from simcse_jax.objectives.views import MASKING as MASKING_STREAM
from simcse_jax.objectives.views import column_number
from simcse_jax.runs import exporting
from simcse_jax.runs.loading import load_model
from simcse_jax.runs.state import ModelSpec, pretrained_shapes, split_shapes
from simcse_jax.training.loss import make_networks
from simcse_jax.training.run import train_and_evaluate

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
def mntp(devices=1, dropout=0.1, **changes):
    """Loss and gradient of masked next token prediction by a tiny bidirectional Mistral with a head of its own."""
    config = EncoderConfig.from_hugging_face(CONFIGS["mistral"] | both_ways("mistral"), "test")
    graph, shapes = build(config, with_head=False)
    shapes = dict(shapes) | pretrained_shapes(config)
    generator = np.random.default_rng(0)
    params = {
        name: np.float32(name.endswith("scale")) + generator.normal(0, 0.2, shape.shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    chosen = recipe(1, objectives=(term("mlm"),), masking=MASKING, use_head=False, pooler="avg", **changes)
    numbers = settings(objective={"mlm": {"weight": 1.0}}, dropout=dropout)
    return computed(compiled(graph, chosen, devices), params, batch(1), numbers), params, config


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "changes"), SPLIT)
def test_masked_next_token_prediction_is_the_same_on_any_number_of_devices_and_in_chunks(devices, changes):
    expected = mntp()[0]
    assert np.abs(expected[1]["language_model.kernel"]).max() > 1e-3
    assert_same(mntp(devices, **changes)[0], expected)


@pytest.mark.slow
def test_masked_next_token_prediction_is_transformers_loss_of_a_decoder_that_reads_both_ways(tmp_path):
    """transformers shifts labels by one, and ignores those of -100."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM

    (loss, gradient), params, config = mntp(dropout=0.0)
    encoder, head = ({n: v for n, v in params.items() if n.startswith(part)} for part in ("encoder.", PREFIX))
    folder = write_model(tmp_path / "both", "mistral", **both_ways("mistral"))
    tensors = {f"model.{name}": value for name, value in to_tensors(encoder, config).items()}
    tensors |= head_tensors(parameters.subset(head, PREFIX), "mistral")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    reference = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    ids, mask = (batch(1)[name][:, 0] for name in ("input_ids", "attention_mask"))
    keys = dropout_keys(jnp.uint32(3), 0, jnp.arange(len(ids)), [column_number(MASKING_STREAM, 0)]).reshape(-1)
    shown, selected = mask_tokens(keys, ids, mask, vocab_size=config.vocab_size, **MASKING._asdict())
    assert selected[:, 0].any() and selected[:, 1:].sum() > 10
    labels = torch.tensor(np.where(selected, ids, -100), dtype=torch.long)
    theirs = reference(torch.tensor(np.asarray(shown)), torch.tensor(mask), labels=labels).loss
    theirs.backward()
    assert loss == pytest.approx(float(theirs), rel=1e-5)
    kernel = reference.lm_head.weight.grad.numpy().T
    np.testing.assert_allclose(gradient["language_model.kernel"], kernel, atol=1e-5 * np.abs(kernel).max())
    first = reference.model.embed_tokens.weight.grad.numpy()
    np.testing.assert_allclose(gradient[WORD_EMBEDDING], first, atol=1e-4 * np.abs(first).max())


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


@pytest.mark.slow
def test_a_decoder_turned_bidirectional_is_exported_as_one_with_its_head_and_trained_on(corpus, tmp_path):
    """LLM2Vec's two steps on a tiny Llama, whose mask token is one of its words."""
    start = write_model(tmp_path / "llama", "llama")
    tensors = load_file(start / "model.safetensors")
    save_file(tensors | {"lm_head.weight": np.ones((40, 32), np.float32)}, start / "model.safetensors")
    fields = {"model__bidirectional": True, "model__pooler": "avg", "model__mlp": "none"}
    mlm = {"objective__info_nce__weight": 0.0, "objective__mlm__weight": 1.0, "objective__mlm__mask_token": "the"}
    train_and_evaluate(short_run(start, corpus["txt"], **fields, **mlm, model__lora__rank=2), str(tmp_path / "mntp"))
    trained = load_model(str(tmp_path / "mntp"))
    assert not trained.config.causal and np.ptp(trained.language_model["kernel"]) > 0
    exporting.export(tmp_path / "mntp", tmp_path / "exported")
    exported = load_model(str(tmp_path / "exported"))
    assert exported.config == trained.config
    assert_arrays(exported.language_model, trained.language_model)
    stated = json.loads((tmp_path / "exported" / "config.json").read_text())
    assert stated["is_causal"] is False and stated.get("tie_word_embeddings", False) is False
    more = {"model__pooler": "avg", "model__mlp": "none"}
    train_and_evaluate(short_run(tmp_path / "mntp", corpus["txt"], **more), str(tmp_path / "simcse"))
    assert not load_model(str(tmp_path / "simcse")).config.causal
