import json
import shutil

import numpy as np
import pytest
from support.cross_encoders import TOKENIZERS, write_cross_encoder, write_theirs
from support.data import raises
from support.recorded import recorded

from simcse_jax import CrossEncoder

LONG = "the cat sat on the mat and the dog ran home " * 4
PAIRS = [("the cat", "da что"), ("a dog", LONG), (LONG, "x"), (LONG, LONG), ("", "the"), ("what [SEP] is", "</s> it")]
PAIRS += [("the dog ran", "home " * n) for n in range(1, 9)]
LINEAR = {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}
SIGMOID = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid", "version": "4.0"}}
BERT = {"one label": (1, {}), "sigmoid": (3, SIGMOID)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return CrossEncoder(write_cross_encoder(tmp_path_factory.mktemp("cross") / "model"))


def theirs(folder, pairs=PAIRS):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    return sentence_transformers.CrossEncoder(str(folder), device="cpu", local_files_only=True).predict(pairs)


def assert_same(folder, expected):
    with pytest.warns(UserWarning, match="longer than 64 tokens and cut there"):
        found = CrossEncoder(folder).predict(PAIRS)
    assert found.shape == expected.shape and np.ptp(expected) > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_scores_are_those_of_sentence_transformers_with_any_labels_and_activations(tmp_path):
    folders = {name: write_cross_encoder(tmp_path / name, n, num_labels=n, **more) for name, (n, more) in BERT.items()}
    compute = lambda: {name: theirs(folder) for name, folder in folders.items()}  # noqa: E731
    peer = recorded("cross_encoder", compute, "torch", "sentence-transformers")
    for name, folder in folders.items():
        assert_same(folder, peer[name])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*TOKENIZERS, "averaged"])
def test_scores_of_every_kind_are_those_of_sentence_transformers(kind, tmp_path):
    averaged = {"classifier_pooling": "mean", "classifier_bias": True, "classifier_activation": "silu"}
    kind, changes = ("modernbert", averaged) if kind == "averaged" else (kind, LINEAR)
    folder = write_theirs(tmp_path / kind, kind, **changes)
    assert_same(folder, theirs(folder))


@pytest.mark.slow
def test_a_folder_that_sentence_transformers_saved_has_its_activation_and_prompt(tmp_path):
    sentence_transformers, torch = map(pytest.importorskip, ("sentence_transformers", "torch"))
    folder = write_theirs(tmp_path / "three", "bert", num_labels=3)
    options = {"activation_fn": torch.nn.Tanh(), "prompts": {"ask": "find it: "}, "default_prompt_name": "ask"}
    their = sentence_transformers.CrossEncoder(str(folder), device="cpu", local_files_only=True, **options)
    their.save_pretrained(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "modules.json").is_file()
    assert_same(tmp_path / "saved", their.predict(PAIRS))


def test_neither_order_batches_a_ranking_nor_a_server_change_a_score(model):
    pairs = [pair for pair in PAIRS if LONG not in pair]
    scores = model.predict(pairs)
    found = model.predict([*reversed(pairs), *pairs], batch_size=3)
    np.testing.assert_allclose(found, [*scores[::-1], *scores], atol=1e-6)
    one = model.predict(pairs[0])
    assert one.shape == () and float(one) == pytest.approx(scores[0], abs=1e-6)
    assert model.predict([]).shape == (0,)
    swapped = model.predict([(second, first) for first, second in pairs])
    assert np.abs(swapped - scores).max() > 1e-3  # a text's place is its type
    each = model.score_of_each(["the dog ran", "a", "b"], [["home", "home home"], [], ["x"]])
    assert [len(scores) for scores in each] == [2, 0, 1] and model.score_of_each([], []) == []
    expected = model.predict([("the dog ran", "home"), ("the dog ran", "home home")])
    np.testing.assert_allclose(each[0], expected, atol=1e-6)
    with pytest.warns(UserWarning, match="2 sentences were longer than 64 tokens"):
        model.score_of_each(["the " * 200], [["home", "x"]])
    documents = ["home", "the cat", "x", "home"]
    scores = model.predict([("a dog", text) for text in documents])
    ranked = model.rank("a dog", documents, return_documents=True)
    assert [one["corpus_id"] for one in ranked] == np.argsort(-scores, kind="stable").tolist()
    assert [one["text"] for one in ranked] == [documents[one["corpus_id"]] for one in ranked]
    first = [{name: one[name] for name in ("corpus_id", "score")} for one in ranked[:2]]
    assert model.rank("a dog", documents, top_k=2) == first
    encoder = model.batch_encoder()
    sentences = encoder.tokenize([("the dog ran", "home"), ("a", "b c")])
    shape, taken = encoder.choose(max(map(encoder.row_length, sentences)), [len(each.ids) for each in sentences])
    scores = encoder.encode([sentences[place] for place in taken], shape)
    assert scores.shape == (2, 1) and encoder.dimension == 1
    np.testing.assert_allclose(scores[:, 0], model.predict([("the dog ran", "home"), ("a", "b c")]), atol=1e-6)
    encoder.warm(shape)


def test_a_shorter_length_bfloat16_and_a_prompt_with_another_activation(model, tmp_path):
    folder = model.name
    short = CrossEncoder(folder, max_length=16)
    with pytest.warns(UserWarning, match="1 sentence was longer than 16 tokens"):
        found = short.predict([("a", LONG), ("a", "b")])
    assert found.shape == (2,) and "at most 16 tokens" in repr(short) and "1 label," in repr(short)
    near = CrossEncoder(folder, dtype="bfloat16").predict([("a", "b")])
    assert near.dtype == np.float32 and abs(near[0] - found[1]) < 0.05
    assert short.identity() != model.identity() == CrossEncoder(folder).identity()
    copied = shutil.copytree(folder, tmp_path / "copied")
    settings = {"prompts": {"ask": "find it: "}, "default_prompt_name": "ask"}
    settings["activation_fn"] = "torch.nn.modules.linear.Identity"
    (copied / "config_sentence_transformers.json").write_text(json.dumps(settings))
    prompted, wanted = CrossEncoder(copied), model.predict([("find it: a", "b")])
    np.testing.assert_allclose(1 / (1 + np.exp(-prompted.predict([("a", "b")]))), wanted, atol=1e-6)
    assert prompted.identity() != model.identity()


def test_what_is_no_pair_and_several_labels_where_one_is_needed_are_refused(model, tmp_path):
    for pairs, message in (
        ([("a", "b"), ("a",)], "pair 1 is ('a',), not two strings"),
        ([("a", "b"), "ab"], "pair 1 is 'ab', not two strings"),
        ([("a", None)], "pair 0 is ('a', None), not two strings"),
        ("ab", "pair 0 is 'a', not two strings"),
        ([("a", "\ud800")], "pair 0 "),
    ):
        raises(message, model.predict, pairs)
    two = CrossEncoder(write_cross_encoder(tmp_path / "two", labels=2))
    raises("two: has 2 labels; rank needs a cross-encoder with one score", two.rank, "a", ["b"])
    for options, message in (
        ({"max_length": 65}, "max_length 65: must be a whole number from 3 to 64"),
        ({"dtype": "int8"}, "dtype 'int8' is not one of"),
    ):
        raises(message, CrossEncoder, model.name, **options)
    raises("document 1 is 3, not a string", model.rank, "a", ["b", 3])
