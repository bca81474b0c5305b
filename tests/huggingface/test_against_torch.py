"""Parity with transformers' PyTorch models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from support import CONFIGS, DECODERS, random_batch, row_keys

from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.tokenizer import MARKER, Tokenizer
from simcse_jax.huggingface.weight_names import normalize_names, to_tensors
from simcse_jax.models import parameters
from simcse_jax.models.sentence_encoder import build

pytestmark = pytest.mark.slow
SENTENCES = ["A man is playing a guitar.", "Hello", "", "Grüße aus Köln 🎸", "word " * 60]


def hidden_states(model, ids, mask):
    graph, _ = build(model.config, with_head=False)
    params = {name: value for name, value in model.params.items() if not name.startswith("head.")}
    return parameters.merge(graph, params).encoder(ids, mask)


@pytest.mark.optimized
def test_every_hidden_state_of_the_real_weights(minilm):
    torch = pytest.importorskip("torch")
    from transformers import BertModel

    model = load(minilm)
    tokenizer = Tokenizer(model.folder, model.config)
    ids, mask = tokenizer.pad(tokenizer(SENTENCES, 64), 64)
    reference = BertModel.from_pretrained(model.folder, attn_implementation="eager").eval()
    with torch.no_grad():
        theirs = reference(torch.tensor(ids), torch.tensor(mask), output_hidden_states=True).hidden_states
    ours = hidden_states(model, ids, mask)
    assert len(ours) == len(theirs) == 7
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(mine)[mask > 0], other.numpy()[mask > 0], atol=1e-4)


@pytest.fixture(scope="module", params=list(CONFIGS))
def their_folder(request, tmp_path_factory):
    return write_theirs(request.param, tmp_path_factory.mktemp(request.param))


def write_theirs(kind, folder, **changes):
    """A random model of a type as transformers writes one, with weights that make the network nonlinear."""
    torch = pytest.importorskip("torch")
    from transformers import AutoConfig, AutoModel

    torch.manual_seed(0)
    fields = {name: value for name, value in CONFIGS[kind].items() if name != "architectures"} | changes
    model = AutoModel.from_config(AutoConfig.for_model(**fields))
    with torch.no_grad():
        for name, value in model.named_parameters():
            is_scale = name.lower().endswith("norm.weight") and kind != "gemma3_text"  # whose scales differ from one
            value.normal_(std=0.15).add_(float(is_scale))
    model.save_pretrained(folder)
    return folder


def by_names_in_files(reference, folder):
    """The gradients of transformers' model by the names in its files, which are not always those of its modules."""
    for parameter in reference.parameters():
        parameter.data = parameter.data * 0 if parameter.grad is None else parameter.grad
    reference.save_pretrained(folder / "gradients")
    tensors = normalize_names(load_file(folder / "gradients" / "model.safetensors"))
    return {name: value for name, value in tensors.items() if not name.startswith("pooler")}


def assert_same_states_and_gradients(folder, ids, mask, bound=1e-5):
    """Every hidden state within the bound; every gradient of a random sum of them within 1e-3 of its largest value."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModel

    model = load(str(folder))
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


YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 |= {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0}
LINEAR = {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("qwen3", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1, "attention_bias": True}),
        ("qwen3", {"rope_parameters": YARN}),
        ("qwen2", {"rope_parameters": YARN | {"attention_factor": 1.5, "beta_fast": 8, "beta_slow": 2}}),
        ("llama", {"rope_parameters": LLAMA3, "attention_bias": True}),
        ("llama", {"rope_parameters": LINEAR, "num_key_value_heads": None}),
        ("mistral", {"sliding_window": None, "head_dim": 6}),
        ("gemma3_text", {"use_bidirectional_attention": False, "rope_parameters": {"full_attention": LINEAR}}),
    ],
)
def test_hidden_states_and_gradients_of_what_decoders_may_ask_for(kind, fields, tmp_path):
    """Windows, scaled rotations, biases, and texts longer than those that are computed in blocks."""
    folder = write_theirs(kind, tmp_path / kind, max_position_embeddings=640, **fields)
    ids, lengths = np.random.default_rng(0).integers(4, 40, (3, 600)).astype(np.int32), np.array([7, 130, 600])
    assert_same_states_and_gradients(folder, ids, (np.arange(600) < lengths[:, None]).astype(np.int32), bound=1e-4)


def test_hidden_states_and_gradients_of_small_random_models(their_folder):
    """Of 1 token to the most that a model takes."""
    lengths = np.array([1, 2, 3, 7, 16, 63, 64])
    ids = np.random.default_rng(0).integers(4, 40, (len(lengths), 64)).astype(np.int32)
    assert_same_states_and_gradients(their_folder, ids, (np.arange(64) < lengths[:, None]).astype(np.int32))


def test_a_padding_token_in_a_text_has_their_position(their_folder):
    torch = pytest.importorskip("torch")
    from transformers import AutoModel

    model = load(str(their_folder))
    ids, mask = np.random.default_rng(2).integers(5, 30, (2, 9)).astype(np.int32), np.ones((2, 9), np.int32)
    ids[0, 3], mask[1, 6:] = model.config.pad_token_id, 0
    ids = np.where(mask > 0, ids, model.config.pad_token_id)
    reference = AutoModel.from_pretrained(their_folder, attn_implementation="eager").eval()
    with torch.no_grad():
        theirs = reference(torch.tensor(ids), torch.tensor(mask)).last_hidden_state.numpy()
    ours = np.asarray(hidden_states(model, ids, mask)[-1])
    np.testing.assert_allclose(ours[mask > 0], theirs[mask > 0], atol=1e-5)


def test_dropout_is_where_theirs_is(their_folder, monkeypatch):
    """Every dropout, ours and theirs, multiplies by 0.7 here; some encoders leave one of them out."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModel

    if their_folder.name.startswith(DECODERS):
        pytest.skip("theirs drop nothing but attention's probabilities; ours drop in BERT's places")

    def scaled(x, p=0.5, training=True, inplace=False):
        return x * 0.7 if training else x

    for module in ("encoder", "layer", "attention"):
        monkeypatch.setattr(f"simcse_jax.models.{module}.drop", lambda x, mask: x if mask is None else x * 0.7)
    monkeypatch.setattr(torch.nn.functional, "dropout", scaled)
    model = load(str(their_folder))
    ids, mask = (array[:, 0] for array in random_batch(5, 16))
    ids = np.where(mask > 0, ids, model.config.pad_token_id)
    reference = AutoModel.from_pretrained(their_folder, attn_implementation="eager").train()
    with torch.no_grad():
        theirs = reference(torch.tensor(ids), torch.tensor(mask), output_hidden_states=True).hidden_states
    graph, _ = build(model.config, with_head=False)
    ours = parameters.merge(graph, model.params).encoder(ids, mask, dropout_keys=row_keys(5))
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(mine)[mask > 0], other.numpy()[mask > 0], atol=1e-4)


@pytest.fixture(scope="module")
def mpnet_base(tmp_path_factory):
    """Three random layers of MPNet-base's width as transformers saves them; with relative positions that matter."""
    torch = pytest.importorskip("torch")
    from transformers import MPNetConfig, MPNetModel

    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "num_hidden_layers": 3, "max_position_embeddings": 514, "layer_norm_eps": 1e-5}
    model = MPNetModel(MPNetConfig(**sizes))
    with torch.no_grad():
        model.encoder.relative_attention_bias.weight.normal_()
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                value.normal_(std=0.1)
    folder = tmp_path_factory.mktemp("mpnet")
    model.save_pretrained(folder)
    return folder


def every_length(longest):
    """Sentences of 1, 2, 3, 16, 17, 64, 65, 129 and 130 tokens, up to `longest`, padded to 3 more than that."""
    lengths = np.array([n for n in (1, 2, 3, 16, 17, 64, 65, 129, 130) if n <= longest])
    ids = np.random.default_rng(0).integers(4, 40, (len(lengths), longest + 3)).astype(np.int32)
    return ids, (np.arange(longest + 3) < lengths[:, None]).astype(np.int32)


@pytest.mark.optimized
def test_hidden_states_and_gradients_of_mpnet_s_width(mpnet_base):
    """Distances up to 129 reach every bucket."""
    assert_same_states_and_gradients(mpnet_base, *every_length(130))


def test_mpnet_s_pooler(mpnet_base):
    torch = pytest.importorskip("torch")
    from transformers import AutoModel

    (mpnet_base / MARKER).write_text('{"pooler": "cls", "head": true}')
    model = load(str(mpnet_base))
    (mpnet_base / MARKER).unlink()
    ids, mask = every_length(64)
    ids = np.where(mask > 0, ids, 1)
    graph, _ = build(model.config, with_head=True)
    ours = parameters.merge(graph, model.params)(ids, mask, pooler="cls", use_head=True)
    with torch.no_grad():
        theirs = AutoModel.from_pretrained(mpnet_base).eval()(torch.tensor(ids), torch.tensor(mask)).pooler_output
    np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-5)
