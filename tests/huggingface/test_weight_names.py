import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file
from support import CONFIGS, random_batch, write_model
from support.models import edit_json, edit_tensors, same

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.weight_names import NAMES, head_tensors, read_head, to_params, to_tensors
from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.sentence_encoder import build


def test_tensors_survive_the_round_trip(tiny_folder):
    tensors = {k: v for k, v in load_file(tiny_folder / "model.safetensors").items()}
    model = load(str(tiny_folder))
    back = to_tensors(model.params, model.config)
    assert {name for name in tensors if not name.startswith("pooler")} == set(back)
    for name, value in back.items():
        np.testing.assert_array_equal(value, tensors[name])


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: {f"bert.{k}": v for k, v in tensors.items()},
        lambda tensors: {f"roberta.{k}": v for k, v in tensors.items()},
        lambda tensors: {f"mpnet.{k}": v for k, v in tensors.items()},
        lambda tensors: {f"distilbert.{k}": v for k, v in tensors.items()},
        lambda tensors: {k: v for k, v in tensors.items() if not k.startswith("pooler")},
        lambda tensors: {
            k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): v
            for k, v in tensors.items()
        },
        lambda tensors: tensors | {"cls.predictions.bias": np.zeros(40, np.float32)},
    ],
    ids=["bert.", "roberta.", "mpnet.", "distilbert.", "no pooler", "gamma and beta", "with a language-model head"],
)
def test_common_variants_of_checkpoints(tiny_folder, folder, change):
    edit_tensors(folder, change)
    same(load(str(folder)), load(str(tiny_folder)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_weights_are_widened(tiny_folder, folder, dtype):
    edit_tensors(folder, lambda tensors: {k: v.astype(dtype) for k, v in tensors.items()})
    loaded, original = load(str(folder)), load(str(tiny_folder))
    for name, value in loaded.params.items():
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, original.params[name], rtol=1e-2, atol=1e-3)


WORDS = "embeddings.word_embeddings.weight"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 1000}, r"'encoder\.layer\.2\.output\.LayerNorm\.weight' is missing"),
        ({"vocab_size": 1 << 26}, rf"'{WORDS}' has shape \(40, 32\), but config\.json asks for \(67108864, 32\)"),
        ({"hidden_size": 1 << 16}, rf"'{WORDS}' has shape"),
        ({"intermediate_size": 1 << 20}, r"intermediate\.dense\.bias' has shape"),
        ({"max_position_embeddings": 1 << 26}, r"position_embeddings\.weight' has shape"),
    ],
    ids=str,
)
def test_a_huge_config_is_refused_before_its_network_is_built(tiny_bert, changes, message, monkeypatch):
    monkeypatch.setattr("simcse_jax.huggingface.weight_names.build", None)
    config = EncoderConfig.from_hugging_face(CONFIGS["bert"] | changes, "m")
    with pytest.raises(UserError, match=message):
        to_params(load_file(tiny_bert / "model.safetensors"), config, None, "m")


@pytest.mark.parametrize("kind", [np.int8, np.int64, np.bool_, np.complex64])
def test_weights_of_another_kind_are_refused(tiny_bert, kind):
    tensors = load_file(tiny_bert / "model.safetensors")
    config = EncoderConfig.from_hugging_face(CONFIGS["bert"], "m")
    with pytest.raises(UserError, match=f"m: '{WORDS}' has the type {np.dtype(kind)}; weights must be float16, bfl"):
        to_params(tensors | {WORDS: tensors[WORDS].astype(kind)}, config, None, "m")
    head = dict.fromkeys(("cls.predictions.bias",), np.zeros(40, kind))
    assert read_head(tensors | head, config) is None


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_weights_that_are_not_finite_are_refused(tiny_bert, value):
    tensors = load_file(tiny_bert / "model.safetensors")
    tensors[WORDS] = tensors[WORDS].astype(np.float64)
    tensors[WORDS][3, 4] = value
    config = EncoderConfig.from_hugging_face(CONFIGS["bert"], "m")
    with pytest.raises(UserError, match=f"m: '{WORDS}' has values that are not finite"):
        to_params(tensors, config, None, "m")


def test_weights_whose_sum_overflows_are_finite(tiny_bert):
    tensors = load_file(tiny_bert / "model.safetensors")
    tensors[WORDS][:] = 3e38
    to_params(tensors, EncoderConfig.from_hugging_face(CONFIGS["bert"], "m"), None, "m")


KINDS = ("xlm-roberta", "camembert", "ernie", "electra", "albert", "modernbert", "nomic_bert")


@pytest.fixture(scope="module", params=KINDS)
def source(request, tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("models") / request.param, request.param)


def test_tensors_survive_the_round_trip_with_their_prefix_and_without(source, tmp_path):
    model, tensors = load(str(source)), load_file(source / "model.safetensors")
    names = NAMES[model.config.model_type]
    back = to_tensors(model.params, model.config)
    assert {name for name in tensors if not name.startswith("pooler")} == set(back)
    for name, value in back.items():
        np.testing.assert_array_equal(value, tensors[name])
    other = write_model(tmp_path / "model", model.config.model_type)
    edit_tensors(other, lambda own: {names.prefix + name: value for name, value in own.items()})
    same(load(str(other)), model)


def test_electra_s_embeddings_of_the_full_width_have_no_dense_layer(tmp_path):
    folder = write_model(tmp_path / "model", "electra", embedding_size=32)
    assert not any("projection" in name for name in load(str(folder)).params)
    edit_tensors(folder, lambda own: own | {"embeddings_project.weight": np.ones((32, 32), np.float32)})
    with pytest.raises(UserError, match=r"has the tensor 'embeddings_project\.weight', but .* embedding_size is 32"):
        load(str(folder))


def test_the_first_layers_of_shared_ones(tmp_path):
    folder = write_model(tmp_path / "model", "albert", num_hidden_layers=4)
    whole, first = load(str(folder)), load(str(folder), 2)
    assert whole.config.groups == [0, 0, 1, 1] and first.config.groups == [0, 0]
    assert first.params.keys() == {name for name in whole.params if not name.startswith("encoder.layers.1.")}


def test_nomic_s_own_head_of_masked_words_has_no_biases_but_the_norm_s(tmp_path):
    """A run that starts from nomic-bert-2048 keeps its head; the biases that transformers' class has are zero."""
    folder, generator = write_model(tmp_path / "model", "nomic_bert"), np.random.default_rng(0)
    shapes = {"dense.weight": (32, 32), "layer_norm.weight": (32,), "layer_norm.bias": (32,)}
    head = {
        f"cls.predictions.transform.{name}": generator.normal(size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    edit_tensors(folder, lambda own: own | head | {"cls.predictions.decoder.weight": own[WORDS]})
    found = load(str(folder)).language_model
    assert found is not None and not found["dense.bias"].any() and not found["bias"].any()
    written = head_tensors(found, "nomic_bert")
    for name, value in head.items():
        np.testing.assert_array_equal(written[name], value)
    assert written.keys() - head.keys() == {"cls.predictions.transform.dense.bias", "cls.predictions.bias"}


def test_hidden_states_of_a_modernbert_are_those_of_transformers_with_padding_and_without(tmp_path):
    """All model types, longer sentences and gradients are slow tests (`test_against_torch`)."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModel

    folder = write_model(tmp_path / "model", "modernbert")
    model, (ids, mask) = load(str(folder)), (array[:, 0] for array in random_batch(5, 16))
    with torch.no_grad():
        reference = AutoModel.from_pretrained(folder, attn_implementation="eager")
        theirs = reference(torch.tensor(ids), torch.tensor(mask), output_hidden_states=True).hidden_states
    graph, _ = build(model.config, with_head=False)

    @jax.jit
    def states(params):
        encoder = parameters.merge(graph, params).encoder
        return [encoder(ids, mask, most_tokens=most_tokens) for most_tokens in (None, int(mask.sum()))]

    for ours in states(model.params):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(np.asarray(mine)[mask > 0], other.numpy()[mask > 0], atol=1e-5)


CONTRADICTIONS = [
    ("electra", {"embedding_size": 8}, rf"'{WORDS}' has shape \(40, 16\), but .* embedding_size is 8"),
    ("electra", {"hidden_size": 64}, r"'embeddings_project\.weight' has shape .* hidden_size is 64 and embedding_size"),
    ("albert", {"embedding_size": 32}, rf"'{WORDS}' has shape \(40, 16\), but .* embedding_size is 32"),
    ("albert", {"num_hidden_groups": 3}, r"groups\.2\..* is missing; config\.json says that num_hidden_groups is 3"),
    ("albert", {"num_hidden_groups": 1}, r"has the tensor 'encoder\.albert_layer_groups\.1\..*num_hidden_groups is 1"),
    (
        "ernie",
        {"use_task_id": False},
        r"the tensor 'embeddings\.task_type_embeddings\.weight', .* use_task_id is not true",
    ),
    ("ernie", {"task_type_vocab_size": 4}, r"task_type_embeddings\.weight' has shape .* task_type_vocab_size is 4"),
    ("bert", {"type_vocab_size": 3}, r"token_type_embeddings\.weight' has shape .*: type_vocab_size is 3"),
    ("camembert", {"max_position_embeddings": 99}, r"position_embeddings\.weight' .* max_position_embeddings is 99"),
    ("bert", {"vocab_size": 41}, rf"'{WORDS}' has shape \(40, 32\), but config\.json asks for .*: vocab_size is 41"),
    ("bert", {"num_hidden_layers": 3}, r"'encoder\.layer\.2\..*' is missing; .* num_hidden_layers is 3"),
    (
        *("modernbert", {"intermediate_size": 49}),
        r"'layers\.0\.mlp\.Wi\.weight' has shape \(96, 32\), but .*\(98, 32\): intermediate_size is 49 and hidden_size",
    ),
    ("modernbert", {"num_hidden_layers": 3}, r"'layers\.2\.mlp_norm\.weight' is missing; .* num_hidden_layers is 3"),
    ("modernbert", {"mlp_bias": True}, r"'layers\.0\.mlp\.Wi\.bias' is missing; .* mlp_bias is true"),
    ("modernbert", {"attention_bias": True}, r"'layers\.0\.attn\.Wo\.bias' is missing; .* attention_bias is true"),
    ("modernbert", {"norm_bias": True}, r"'embeddings\.norm\.bias' is missing; .* norm_bias is true"),
    ("modernbert", {"vocab_size": 41}, r"'embeddings\.tok_embeddings\.weight' has shape .*: vocab_size is 41"),
    ("nomic_bert", {"intermediate_size": 49}, r"'encoder\.layers\.0\.mlp\.fc12\.weight' has shape \(48, 32\)"),
    ("nomic_bert", {"type_vocab_size": 1}, r"token_type_embeddings\.weight' has shape .*: type_vocab_size is 1"),
    ("distilbert", {"hidden_dim": 49}, r"ffn\.lin1\.bias' has shape \(48,\), .*: hidden_dim is 49"),
]


@pytest.mark.parametrize(("model_type", "changes", "message"), CONTRADICTIONS)
def test_a_config_that_contradicts_its_weights_names_the_field_and_the_tensor(model_type, changes, message, tmp_path):
    folder = write_model(tmp_path / "model", model_type)
    edit_json(folder / "config.json", **changes)
    with pytest.raises(UserError, match=message):
        load(str(folder))


SURPLUS = [
    ("modernbert", "layers.0.attn.Wqkv.bias", "attention_bias is not true"),
    ("modernbert", "layers.0.mlp.Wo.bias", "mlp_bias is not true"),
    ("modernbert", "layers.1.attn.Wo.bias", "attention_bias is not true"),
    ("modernbert", "embeddings.norm.bias", "norm_bias is not true"),
    ("modernbert", "layers.1.attn_norm.bias", "norm_bias is not true"),
    ("modernbert", "final_norm.bias", "norm_bias is not true"),
    ("modernbert", "layers.0.attn_norm.weight", "model_type is modernbert, whose first layer has none"),
    ("nomic_bert", "encoder.layers.0.attn.out_proj.bias", "model_type is nomic_bert, which has no such biases"),
    ("nomic_bert", "encoder.layers.1.mlp.fc11.bias", "model_type is nomic_bert, which has no such biases"),
    ("nomic_bert", "embeddings.position_embeddings.weight", "model_type is nomic_bert, whose positions are rotary"),
    ("bert", "embeddings.task_type_embeddings.weight", "model_type is bert"),
    ("roberta", "encoder.relative_attention_bias.weight", "model_type is roberta"),
]


@pytest.mark.parametrize(("model_type", "tensor", "message"), SURPLUS)
def test_weights_of_parts_that_the_config_lacks_are_named(model_type, tensor, message, tmp_path):
    folder = write_model(tmp_path / "model", model_type)
    edit_tensors(folder, lambda own: own | {tensor: np.ones(32, np.float32)})
    with pytest.raises(UserError, match=f"has the tensor '{tensor}', but in config.json {message}"):
        load(str(folder))


def test_a_task_that_weights_lack_is_missed(tmp_path):
    folder = write_model(tmp_path / "model", "bert")
    edit_json(folder / "config.json", **CONFIGS["ernie"])
    with pytest.raises(UserError, match=r"task_type_embeddings\.weight' is missing; .* task_type_vocab_size is 3"):
        load(str(folder))


def test_a_bias_that_weights_lack_is_asked_for_by_the_field_that_the_file_has(tmp_path):
    """NomicBERT's config has no field for the biases of its norms, and each of ModernBERT's norms is looked at."""
    nomic = write_model(tmp_path / "nomic", "nomic_bert")
    edit_tensors(nomic, lambda own: {name: value for name, value in own.items() if name != "emb_ln.bias"})
    with pytest.raises(UserError, match=r"'emb_ln\.bias' is missing; is this a nomic_bert checkpoint\?"):
        load(str(nomic))
    modern = write_model(tmp_path / "modern", "modernbert")
    edit_json(modern / "config.json", norm_bias=True)
    edit_tensors(modern, lambda own: own | {"embeddings.norm.bias": np.ones(32, np.float32)})
    with pytest.raises(UserError, match=r"'final_norm\.bias' is missing; config\.json says that norm_bias is true"):
        load(str(modern))
