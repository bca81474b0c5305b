import copy
import dataclasses
import json
import pickle
import shutil
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import DATA, PROMPTS, sentences, write_model

from simcse_jax import SimCSE
from simcse_jax.encoding.embedder import make_embed, to_unit
from simcse_jax.errors import UserError
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.vectors.quantization import quantize, ranges_of


@pytest.fixture(scope="module")
def model(tiny_bert):
    return SimCSE(str(tiny_bert))


def test_encode_keeps_the_order_for_any_batch_size_and_takes_every_kind_of_sequence(model):
    texts = [*sentences(9), "", "the cat " * 20, *sentences(3)]
    together = model.encode(texts)
    assert together.shape == (len(texts), 32) and together.dtype == np.float32 and np.isfinite(together).all()
    np.testing.assert_allclose(model.encode(texts, batch_size=1), together, atol=1e-5)
    np.testing.assert_allclose(model.encode(texts, batch_size=2), together, atol=1e-5)
    alone = model.encode(texts[3])
    assert alone.shape == (32,)
    np.testing.assert_allclose(alone, together[3], atol=1e-5)
    np.testing.assert_array_equal(together[0], together[11])  # the same sentence twice
    texts = sentences(5)
    expected = model.encode(texts)
    for given in (tuple(texts), np.array(texts), (text for text in texts), np.array(texts, dtype=object)):
        np.testing.assert_array_equal(model.encode(given), expected)
    assert model.encode(np.str_(texts[0])).shape == (32,)
    assert model.encode([]).shape == (0, 32) and model.encode([]).dtype == np.float32
    np.testing.assert_array_equal(model(texts), expected)  # an evaluator's view of it


def test_all_devices_take_part_and_a_copy_shares_the_parameters(model, tiny_bert):
    embedder = model._embedder
    assert embedder.sharding.num_devices == len(jax.local_devices()) == 8
    embed = make_embed(embedder.graph, embedder.pooler, embedder.use_head, embedder.sharding)
    ids = jax.device_put(np.ones((16, 8), np.int32), embedder.sharding)
    program = embed.lower(embedder.params, ids, ids).compile()
    assert program.output_shardings.shard_shape((16, 32)) == (2, 32)
    assert not any(word in program.as_text() for word in ("all-gather", "all-reduce", "collective-permute"))
    assert model.dimension == model.encode("the cat").size == 32 and model.tokens.tokenize(["the cat"])[1] == 0
    facts = f"bert, 2 layers, dimension 32, at most 64 tokens, pooler {model.pooler}, float32"
    assert repr(model) == f"SimCSE({str(tiny_bert)!r}: {facts})"
    other = copy.copy(model)
    other.pooler = "max"
    assert other._model.params is model._model.params and model.pooler != "max"
    assert np.abs(other.encode("the cat sat") - model.encode("the cat sat")).max() > 1e-3


def test_arguments_out_of_their_range_and_what_is_no_model_are_refused(prompted, model, tiny_bert):
    other = SimCSE(prompted)
    for options, message in (
        ({"pooler": "min"}, "'min' is not one of"),
        ({"max_length": 65}, "from 3 to 64"),
        ({"prompt": "a", "prompt_name": "q"}, "give one of them"),
        ({"prompt_name": "passage"}, "prompt_name='passage': the model has the prompts query, document, q"),
        ({"truncate_dim": 0}, "truncate_dim 0: must be a whole number from 1 to 32"),
    ):
        with pytest.raises(UserError, match=message):
            other.encode(["the cat"], **options)
    changed = copy.copy(model)
    for length in (2, 65):
        changed.max_length = length
        with pytest.raises(UserError, match=f"max_length {length}: must be a whole number from 3 to"):
            changed.encode("the cat")
    with pytest.raises(AttributeError):
        model.max_seq_length = 5  # its name elsewhere
    with pytest.raises(AttributeError, match="is called max_length"):
        _ = model.max_seq_length
    for options, message in (
        ({"num_layers": -1}, "0 keeps all"),
        ({"dtype": "float16"}, "dtype 'float16' is not one of float32, bfloat16"),
    ):
        with pytest.raises(UserError, match=message):
            SimCSE(str(tiny_bert), **options)


@pytest.mark.slow
def test_weights_are_rounded_once_and_give_the_same_bits_as_with_every_batch(tiny_bert):
    model, texts = SimCSE(str(tiny_bert), dtype="bfloat16"), sentences(20)
    embedder = model._embedder
    rounds_each_time = embedder.with_params(embedder.params)
    assert embedder.copies and not rounds_each_time.copies and not SimCSE(str(tiny_bert))._embedder.copies
    found = embedder.encode(texts).embeddings
    np.testing.assert_array_equal(found, rounds_each_time.encode(texts).embeddings)
    twice = {name: 2 * value for name, value in embedder.copies.items()}
    assert (dataclasses.replace(embedder, copies=twice).encode(texts).embeddings != found).any()  # they are read
    for row, states in embedder.hidden_states(texts[:3]):
        np.testing.assert_array_equal(states, dict(rounds_each_time.hidden_states(texts[:3]))[row])
    assert all(value.dtype == np.float32 for value in model._model.params.values())  # of an export, and its identity


@pytest.mark.optimized
@pytest.mark.slow
def test_products_in_bfloat16_give_nearly_the_same_embeddings(minilm):
    texts = ["A man is riding in a boat.", "", "The dog is asleep.", "It's cold. " * 40]
    exact, found = (SimCSE(minilm, dtype=dtype).encode(texts) for dtype in ("float32", "bfloat16"))
    assert found.dtype == np.float32
    assert np.sum(to_unit(exact) * to_unit(found), axis=1).min() >= 0.999 and np.abs(exact - found).max() > 1e-5


def test_prompts_come_before_sentences(prompted):
    model, plain = SimCSE(prompted), SimCSE(prompted, truncate_dim=32)
    assert (model.dimension, plain.dimension) == (8, 32) and model.encode([]).shape == (0, 8)
    assert (model.prompts, model.default_prompt_name) == (PROMPTS, "q")
    texts = ["the cat", "a river"]

    def expected(prompt):
        return plain.encode([prompt + text for text in texts], prompt="")[:, :8]

    for found, prompt in (
        (model.encode(texts), "a cat "),
        (model.encode(texts, prompt_name="query"), "the man "),
        (model.encode(texts, prompt="the "), "the "),
        (model.encode_query(texts), "the man "),
        (model.encode_document(texts), "on "),
        (model.encode_document(texts, prompt=""), ""),
    ):
        np.testing.assert_allclose(found, expected(prompt), atol=1e-6)
    unit = model.encode(texts, truncate_dim=3, normalize_to_unit=True)
    np.testing.assert_allclose(unit, to_unit(model.encode(texts)[:, :3]), atol=1e-6)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).encode(texts), model.encode(texts), atol=1e-6)


def test_cut_sentences_are_counted_in_one_warning_and_a_call_has_its_own_pooler(model, tiny_bert):
    texts = ["the cat sat on the mat", "a dog", "the red bird sings in the tree", "the cat sat on the mat"]
    with pytest.warns(UserWarning, match="^3 sentences were longer than 5 tokens and cut there$") as caught:
        found = model.encode(texts, max_length=5)
    assert len(caught) == 1 and caught[0].filename == __file__
    np.testing.assert_allclose(found[0], model.encode("the cat sat"), atol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.encode(texts)
    texts = sentences(4)
    averaged = model.encode(texts, pooler="avg")
    by_mean = SimCSE(str(tiny_bert), pooler="mean")
    assert by_mean.pooler == "avg"  # its other name
    np.testing.assert_array_equal(averaged, by_mean.encode(texts))
    assert np.abs(averaged - model.encode(texts)).max() > 0.1


def test_unit_length_is_the_caller_s_choice_or_the_model_s(tiny_bert, tmp_path):
    folder = shutil.copytree(tiny_bert, tmp_path / "m")
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    listing = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in modules]
    (folder / "modules.json").write_text(json.dumps(listing))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    texts = sentences(4)
    normalized, plain = SimCSE(str(folder)), SimCSE(str(tiny_bert), pooler="avg")
    assert np.abs(np.linalg.norm(plain.encode(texts), axis=1) - 1).max() > 0.1
    np.testing.assert_allclose(np.linalg.norm(normalized.encode(texts), axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(normalized.encode(texts, normalize_to_unit=False), plain.encode(texts), atol=1e-6)
    np.testing.assert_allclose(plain.encode(texts, normalize_to_unit=True), normalized.encode(texts), atol=1e-6)


def test_progress_is_shown_on_request_and_foreign_arguments_are_refused(model, capsys, monkeypatch):
    monkeypatch.setattr("simcse_jax.host.progress.LINE_SECONDS", 0)
    model.encode(["the cat", "a dog", "the cat"], show_progress_bar=True)
    assert "3 of 3 sentences" in capsys.readouterr().err
    copy.copy(model).build_index(["the cat", "a dog"], show_progress_bar=True)
    assert "2 of 2 sentences" in capsys.readouterr().err
    model.encode(["the cat"])
    assert capsys.readouterr().err == ""
    for call in (
        lambda: model.encode(["a"], normalize_embeddings=True),
        lambda: model.encode_query(["a"], normalize_embeddings=True),
        lambda: model.encode_counted(["a"], normalize_embeddings=True),
        lambda: model.search("a", device="cpu"),
    ):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            call()


def test_similarity_as_the_reference_s_package_gives_it_also_of_embeddings_of_any_kind(model):
    a, b = sentences(3, seed=1), sentences(4, seed=2)
    cosines = model.similarity(a, b)
    u, v = (model.encode(texts).astype(float) for texts in (a, b))
    expected = u @ v.T / np.outer(np.linalg.norm(u, axis=1), np.linalg.norm(v, axis=1))
    assert cosines.shape == (3, 4)
    np.testing.assert_allclose(cosines, expected, atol=1e-6)
    np.testing.assert_allclose(model.similarity(a[1], b), expected[1], atol=1e-6)
    np.testing.assert_allclose(model.similarity(a, b[2]), expected[:, 2:3], atol=1e-6)
    one = model.similarity(a[1], b[2])
    assert isinstance(one, float) and abs(one - expected[1, 2]) < 1e-6
    np.testing.assert_allclose(model.similarity(u.astype(np.float32), b), expected, atol=1e-6)
    np.testing.assert_allclose(model.similarity(u[0], v), expected[0], atol=1e-6)
    assert model.similarity([], b).shape == (0, 4)
    with pytest.raises(UserError, match=r"shape \(3, 5\); this model's"):
        model.similarity(np.zeros((3, 5)), b)
    texts = sentences(3)
    own, expected = model.encode(texts), model.similarity(texts, texts)
    for given in (own.astype(np.float64), jnp.asarray(own), own.tolist(), list(own)):
        np.testing.assert_allclose(model.similarity(given, texts), expected, atol=1e-6)
        np.testing.assert_allclose(model.similarity(given[0], given), expected[0], atol=1e-6)
    np.testing.assert_allclose(model.similarity(jnp.asarray(own, jnp.bfloat16), texts), expected, atol=1e-2)
    searched = copy.copy(model)
    searched.build_index(texts)
    assert searched.search(own[1].tolist())[0][:2] == (texts[1], 1)
    for found, by_text in zip(searched.search(jnp.asarray(own)), searched.search(texts), strict=True):
        assert [result.row for result in found] == [result.row for result in by_text]


@pytest.mark.slow
def test_pytorch_s_tensors_are_embeddings_too(model):
    torch = pytest.importorskip("torch")
    texts = sentences(3)
    expected = model.similarity(texts, texts)
    tensor = torch.tensor(model.encode(texts), requires_grad=True)
    np.testing.assert_allclose(model.similarity(tensor, texts), expected, atol=1e-6)
    np.testing.assert_allclose(model.similarity(list(tensor), tensor[0]), expected[:, :1], atol=1e-6)
    np.testing.assert_allclose(model.similarity(tensor.to(torch.bfloat16), texts), expected, atol=1e-2)


@pytest.mark.optimized
@pytest.mark.slow
def test_embeddings_are_those_of_sentence_transformers(minilm, senteval):
    """Of sentences of one character to 2,000 words: Wikipedia's, cut and joined; emoji; other scripts."""
    pytest.importorskip("torch")
    from sentence_transformers import SentenceTransformer

    lines = (DATA / "wiki_sample.txt").read_text().splitlines()
    texts = ["", " ", "a", "字", "🎸", "漢字かな交じり文。", "Привет, мир!", "שלום עולם", "नमस्ते दुनिया"]
    texts += ["e\u0301 combining", "👩‍👩‍👧‍👦 family", "🏳️‍🌈🏴‍☠️", "\u200b", "ﬁ ligature ½", "supercalifragilistic" * 30]
    texts += [" ".join(" ".join(lines[:3000]).split()[: 2 ** (n + 4)]) for n in range(5)]
    texts += [line[: 2 ** (n % 12)] for n, line in enumerate(lines[:60])]
    with pytest.warns(UserWarning, match="1 sentence was longer than 256 tokens"):
        ours = SimCSE(minilm).encode(texts)
    theirs = SentenceTransformer(str(resolve(minilm)), device="cpu").encode(texts)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.slow
def test_a_pooler_that_is_set_has_its_own_head_or_none(tmp_path):
    folder = write_model(tmp_path / "model", "bert", architectures=["BertForCL"])
    with pytest.warns(UserWarning, match="model: its files do not say how to pool") as caught:
        model = SimCSE(str(folder))
    assert model.use_head and caught[0].filename == __file__
    for pooler, head in (("cls_before_pooler", False), ("avg", False), ("cls", True)):
        model.pooler = pooler
        assert model.use_head is head
        np.testing.assert_array_equal(model.encode("the cat"), SimCSE(str(folder), pooler=pooler).encode("the cat"))
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).encode("the cat"), model.encode("the cat"))


def test_it_goes_to_other_processes_with_its_index_which_belongs_to_rotations_and_windows_too(tmp_path, tiny_bert):
    folder = write_model(tmp_path / "modernbert", "modernbert", num_layers=1)  # those have no weights
    found, config = [SimCSE(str(folder)).identity()], json.loads((folder / "config.json").read_text())
    for change in ({"local_attention": 6}, {"global_rope_theta": 500.0}):
        (folder / "config.json").write_text(json.dumps(config | change))
        found.append(SimCSE(str(folder)).identity())
    assert len(set(found)) == 3
    some = sentences(9, seed=5)
    model = SimCSE(shutil.copytree(tiny_bert, tmp_path / "model"), pooler="avg", batch_size=8)
    model.build_index(sentences(20))
    data = pickle.dumps(model)
    shutil.rmtree(tmp_path / "model")
    other = pickle.loads(data)
    np.testing.assert_array_equal(other.encode(some), model.encode(some))
    assert other.search(some, threshold=-1) == model.search(some, threshold=-1)
    assert (other.identity(), other.batch_size, repr(other)) == (model.identity(), 8, repr(model))
    other.add_to_index(some)
    assert (len(other.index), len(model.index)) == (29, 20)


def test_embeddings_in_bytes_and_bits_are_those_of_the_numbers(model, tmp_path):
    texts = sentences(120)
    expected = model.encode(texts)
    ranges = ranges_of(expected)
    for precision in ("int8", "uint8", "binary", "ubinary", "float32"):
        np.testing.assert_array_equal(model.encode(texts, precision=precision), quantize(expected, precision))
    np.save(tmp_path / "ranges.npy", ranges)
    for encode in (model.encode, model.encode_query, model.encode_document):
        found = encode(texts[3], precision="int8", ranges=tmp_path / "ranges.npy")
        assert np.abs(found.astype(int) - quantize(expected, "int8")[3]).max() <= 1 and found.shape == (32,)
    assert model.encode([], precision="ubinary").shape == (0, 4)
    with pytest.warns(UserWarning, match="the ranges are those of 5 embeddings alone"):
        model.encode(texts[:5], precision="int8")
    with pytest.raises(UserError, match=r"embeddings of type int8: .*dequantize"):
        model.similarity(model.encode(texts, precision="int8"), expected)
