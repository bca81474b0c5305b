"""Parity with transformers' PyTorch models: of every supported kind, and of real weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from support import CONFIGS, DECODERS, row_keys, write_model
from support.cross_encoders import save_random
from support.recorded import recorded, sketch, twice

from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.huggingface.weight_names import normalize_names, to_tensors
from simcse_jax.models import parameters
from simcse_jax.models.pooling import pool
from simcse_jax.models.sentence_encoder import build

SENTENCES = ["A man is playing a guitar.", "Hello", "", "Grüße aus Köln 🎸", "word " * 60]


def hidden_states(model, ids, mask, keys=None, factors=(1.0,)):
    """For each factor those of a text; every dropout multiplies by it where there are keys."""
    graph, _ = build(model.config, with_head=False)

    @jax.jit
    def run(params, factor):
        with pytest.MonkeyPatch.context() as patch:
            for module in ("encoder", "layer", "attention"):
                own = lambda x, mask: x if mask is None else x * factor  # noqa: E731
                patch.setattr(f"simcse_jax.models.{module}.drop", own)
            return parameters.merge(graph, params).encoder(ids, mask, dropout_keys=keys)

    params = {name: value for name, value in model.params.items() if not name.startswith("head.")}
    return [run(params, factor) for factor in factors]


def their_states(folder, ids, mask, *, train=False):
    import torch
    from transformers import AutoModel

    reference, loading = AutoModel.from_pretrained(folder, attn_implementation="eager", output_loading_info=True)
    assert not [name for name in loading["missing_keys"] if "pooler" not in name]
    with torch.no_grad():
        states = reference.train(train)(torch.tensor(ids), torch.tensor(mask), output_hidden_states=True).hidden_states
    return [state.numpy() for state in states]


def sketched(states, mask, prefix=""):
    """Of the tokens of each layer, by its number."""
    return {f"{prefix}{layer}": sketch(np.asarray(state)[mask > 0]) for layer, state in enumerate(states)}


def assert_close(ours, theirs, bound):
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], atol=bound, err_msg=name)


@twice(pytest.mark.optimized)
def test_every_hidden_state_and_the_embeddings_of_the_real_weights(minilm, live):
    model = load(minilm)
    tokenizer = Tokenizer(model.folder, model.config)
    ids, mask = tokenizer.pad(tokenizer(SENTENCES, 64), 64)

    def described(states):
        means = np.asarray(states[-1] * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        return sketched(states, mask) | {"embeddings": np.float32(means)}

    compute = lambda: described(their_states(model.folder, ids, mask))  # noqa: E731
    theirs = recorded("minilm", compute, "torch", "transformers", live=live)
    (ours,) = hidden_states(model, ids, mask)
    assert_close(sketched(ours, mask) | {"embeddings": pool(ours, mask, "avg")}, theirs, 1e-4)


NAMES_ALONE = ("xlm-roberta", "camembert")  # RoBERTa under other names
QUICK = [(kind, False) for kind in CONFIGS if kind not in NAMES_ALONE]


@pytest.mark.parametrize(
    ("kind", "live"), [*QUICK, *(pytest.param(kind, True, marks=pytest.mark.slow) for kind in CONFIGS)]
)
def test_hidden_states_and_the_places_of_dropout_are_theirs(kind, live, tmp_path):
    """Of texts of 1 to 12 tokens, the last one with a padding token, which has their position. Every dropout, ours and
    theirs, multiplies by 0.7; some encoders leave one of them out. Decoders of theirs drop nothing but probabilities of
    attention, ours in BERT's places."""
    model = load(str(write_model(tmp_path / kind, kind)))
    mask = (np.arange(12) < np.array([1, 7, 12, 12])[:, None]).astype(np.int32)
    ids = np.random.default_rng(0).integers(5, 30, mask.shape).astype(np.int32)
    ids[3, 4] = model.config.pad_token_id
    ids = np.where(mask > 0, ids, model.config.pad_token_id)

    def compute():
        import torch

        with pytest.MonkeyPatch.context() as patch:
            scaled = lambda x, p=0.5, training=True, inplace=False: x * 0.7 if training else x  # noqa: E731
            patch.setattr(torch.nn.functional, "dropout", scaled)
            found = sketched(their_states(model.folder, ids, mask), mask)
            if kind not in DECODERS:
                found |= sketched(their_states(model.folder, ids, mask, train=True), mask, "dropped ")
            return found

    theirs = recorded(f"hidden_states/{kind}", compute, "torch", "transformers", live=live)
    factors, keys = ((1.0,), None) if kind in DECODERS else ((1.0, 0.7), row_keys(4))
    found = hidden_states(model, ids, mask, keys, factors)
    for states, prefix, bound in zip(found, ("", "dropped "), (1e-5, 1e-4), strict=False):
        ours = sketched(states, mask, prefix)
        assert_close(ours, {name: theirs[name] for name in ours}, bound)


def by_names_in_files(reference, folder):
    """The gradients of transformers' model by the names in its files, which are not always those of its modules."""
    for parameter in reference.parameters():
        parameter.data = parameter.data * 0 if parameter.grad is None else parameter.grad
    reference.save_pretrained(folder / "gradients")
    tensors = normalize_names(load_file(folder / "gradients" / "model.safetensors"))
    return {name: value for name, value in tensors.items() if not name.startswith("pooler")}


def assert_same_states_and_gradients(folder, lengths, bound=1e-5):
    """Every hidden state within the bound; every gradient of a random sum of them within 1e-3 of its largest value."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModel

    model, lengths = load(str(folder)), np.array(lengths)
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int32)
    ids = np.random.default_rng(0).integers(4, 40, mask.shape).astype(np.int32)
    ids = np.where(mask > 0, ids, model.config.pad_token_id)
    shape = (*ids.shape, model.config.hidden_size)
    weight = np.random.default_rng(1).normal(size=shape).astype(np.float32) * mask[:, :, None]
    reference = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    output = reference(torch.tensor(ids), torch.tensor(mask), output_hidden_states=True)
    sum((state * torch.tensor(weight)).sum() for state in output.hidden_states).backward()
    theirs = by_names_in_files(reference, folder)
    graph, _ = build(model.config, with_head=False)

    def loss(params):
        states = parameters.merge(graph, params).encoder(ids, mask)
        return sum(jnp.sum(state * weight) for state in states), states

    params = {name: jnp.asarray(value) for name, value in model.params.items() if not name.startswith("head.")}
    (_, states), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    for mine, other in zip(states, output.hidden_states, strict=True):
        np.testing.assert_allclose(np.asarray(mine)[mask > 0], other.detach().numpy()[mask > 0], atol=bound)
    ours = to_tensors(gradient, model.config)
    assert set(theirs) == {name for name in ours if not name.startswith("pooler.")}
    for name, other in theirs.items():
        if name.endswith(("key.bias", "attn.k.bias", "k_lin.bias")):  # softmax ignores it: zero except for rounding
            assert np.abs(ours[name]).max() < 1e-4 and np.abs(other).max() < 1e-4
        else:
            assert np.abs(ours[name] - other).max() / np.abs(other).max() < 1e-3, name


KINDS = ("bert", "mpnet", "distilbert", "electra", "albert", "modernbert", "nomic_bert", "qwen3", "gemma3_text")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_and_gradients_of_small_random_models(kind, tmp_path):
    assert_same_states_and_gradients(save_random("AutoModel", CONFIGS[kind], tmp_path / kind), [1, 2, 7, 16, 63, 64])


LINEAR = {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = LINEAR | {"rope_type": "llama3", "low_freq_factor": 1.0, "original_max_position_embeddings": 32}
LLAMA3 |= {"high_freq_factor": 4.0, "factor": 8.0}
FIELDS = [
    ("qwen3", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1, "attention_bias": True}),
    ("qwen3", {"rope_parameters": YARN}),
    ("qwen2", {"rope_parameters": YARN | {"attention_factor": 1.5, "beta_fast": 8, "beta_slow": 2}}),
    ("llama", {"rope_parameters": LLAMA3, "attention_bias": True, "num_key_value_heads": None}),
    ("mistral", {"sliding_window": None, "head_dim": 6}),
    ("mistral", {"is_causal": False}),
    ("gemma3_text", {"use_bidirectional_attention": False, "rope_parameters": {"full_attention": LINEAR}}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "fields"), FIELDS)
def test_hidden_states_and_gradients_of_what_decoders_may_ask_for(kind, fields, tmp_path):
    """Windows, scaled rotations, biases, and texts longer than those that are computed in blocks."""
    folder = save_random("AutoModel", CONFIGS[kind] | {"max_position_embeddings": 640} | fields, tmp_path / kind)
    assert_same_states_and_gradients(folder, [130, 520], bound=1e-4)
