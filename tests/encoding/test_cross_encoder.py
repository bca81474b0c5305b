import json
import shutil

import numpy as np
import pytest
from support.cross_encoders import TOKENIZERS, write_cross_encoder, write_theirs

from simcse_jax import CrossEncoder
from simcse_jax.errors import UserError

LONG = "the cat sat on the mat and the dog ran home " * 4
PAIRS = [("the cat", "da что"), ("a dog", LONG), (LONG, "x"), (LONG, LONG), ("", "the"), ("what [SEP] is", "</s> it")]
PAIRS += [("the dog ran", "home " * n) for n in range(1, 9)]
FIRST = ("bert", "roberta", "xlm-roberta", "modernbert")  # the others are slow


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


@pytest.mark.parametrize(
    "kind", [kind if kind in FIRST else pytest.param(kind, marks=pytest.mark.slow) for kind in TOKENIZERS]
)
def test_scores_are_those_of_sentence_transformers(kind, tmp_path):
    linear = {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}
    folder = write_theirs(tmp_path / kind, kind, **(linear if kind != "bert" else {}))  # whose sigmoid is the default
    assert_same(folder, theirs(folder))


def test_several_labels_and_the_activations_and_layouts_of_files(tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder = write_theirs(tmp_path / "three", "bert", num_labels=3)
    three = theirs(folder)
    assert three.shape == (len(PAIRS), 3)
    assert_same(folder, three)
    # As sentence-transformers 6 saves one, with an activation of its own and a prompt.
    torch = pytest.importorskip("torch")
    prompts = {"prompts": {"ask": "find it: "}, "default_prompt_name": "ask"}
    their = sentence_transformers.CrossEncoder(
        str(folder), device="cpu", local_files_only=True, activation_fn=torch.nn.Tanh(), **prompts
    )
    their.save_pretrained(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "modules.json").is_file()
    assert_same(tmp_path / "saved", their.predict(PAIRS))
    # As earlier versions wrote the activation.
    for number, field in enumerate(
        (
            {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid", "version": "4.0"}},
        )
    ):
        copied = shutil.copytree(folder, tmp_path / f"copied{number}")
        config = json.loads((copied / "config.json").read_text())
        (copied / "config.json").write_text(json.dumps(config | field))
        expected = theirs(copied)
        np.testing.assert_allclose(expected, three if not number else 1 / (1 + np.exp(-three)), atol=1e-6)
        assert_same(copied, expected)


@pytest.mark.slow
def test_modernbert_may_average_and_have_biases(tmp_path):
    changes = {"classifier_pooling": "mean", "classifier_bias": True, "classifier_activation": "silu"}
    folder = write_theirs(tmp_path / "model", "modernbert", **changes)
    assert_same(folder, theirs(folder))


def test_the_order_of_pairs_their_batches_and_copies_change_nothing(model):
    pairs = [pair for pair in PAIRS if LONG not in pair]
    scores = model.predict(pairs)
    np.testing.assert_allclose(
        model.predict([*reversed(pairs), *pairs], batch_size=3)[: len(pairs)], scores[::-1], atol=1e-6
    )
    one = model.predict(pairs[0])
    assert one.shape == () and float(one) == pytest.approx(scores[0], abs=1e-6)
    assert model.predict([]).shape == (0,)
    swapped = model.predict([(second, first) for first, second in pairs])
    assert np.abs(swapped - scores).max() > 1e-3  # a text's place is its type
    each = model.score_of_each(["the dog ran", "a", "b"], [["home", "home home"], [], ["x"]])
    assert [len(scores) for scores in each] == [2, 0, 1] and model.score_of_each([], []) == []
    np.testing.assert_allclose(
        each[0], model.predict([("the dog ran", "home"), ("the dog ran", "home home")]), atol=1e-6
    )


def test_pairs_that_are_cut_are_said_wherever_they_are_scored(model):
    with pytest.warns(UserWarning, match="2 sentences were longer than 64 tokens"):
        model.score_of_each(["the " * 200], [["home", "x"]])


def test_documents_are_ranked(model):
    documents = ["home", "the cat", "x", "home"]
    scores = model.predict([("a dog", text) for text in documents])
    ranked = model.rank("a dog", documents, return_documents=True)
    assert [one["corpus_id"] for one in ranked] == np.argsort(-scores, kind="stable").tolist()
    assert [one["text"] for one in ranked] == [documents[one["corpus_id"]] for one in ranked]
    assert model.rank("a dog", documents, top_k=2) == [
        {name: one[name] for name in ("corpus_id", "score")} for one in ranked[:2]
    ]


def test_a_server_s_batches_have_the_same_scores(model):
    encoder = model.batch_encoder()
    sentences = encoder.tokenize([("the dog ran", "home"), ("a", "b c")])
    length = max(map(encoder.row_length, sentences))
    shape, taken = encoder.choose(length, [len(each.ids) for each in sentences])
    scores = encoder.encode([sentences[place] for place in taken], shape)
    assert scores.shape == (2, 1) and encoder.dimension == 1
    np.testing.assert_allclose(scores[:, 0], model.predict([("the dog ran", "home"), ("a", "b c")]), atol=1e-6)
    encoder.warm(shape)


def test_a_shorter_length_and_bfloat16(model):
    folder = model.name
    short = CrossEncoder(folder, max_length=16)
    with pytest.warns(UserWarning, match="1 sentence was longer than 16 tokens"):
        found = short.predict([("a", LONG), ("a", "b")])
    assert found.shape == (2,) and "at most 16 tokens" in repr(short) and "1 label," in repr(short)
    near = CrossEncoder(folder, dtype="bfloat16").predict([("a", "b")])
    assert near.dtype == np.float32 and abs(near[0] - found[1]) < 0.05
    assert short.identity() != model.identity() == CrossEncoder(folder).identity()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("a", "b"), ("a",)], "pair 1 is ('a',), not two strings"),
        ([("a", "b"), "ab"], "pair 1 is 'ab', not two strings"),
        ([("a", None)], "pair 0 is ('a', None), not two strings"),
        (["a", "b", "c"], "pair 0 is ['a', 'b', 'c'], not two strings"),
        ("ab", "'ab': not a list of pairs of strings"),
        ([("a", "\ud800")], "pair 0 "),
    ],
)
def test_what_is_no_pair_is_refused(model, pairs, message):
    with pytest.raises(UserError) as error:
        model.predict(pairs)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_several_labels_where_one_is_needed_and_wrong_arguments_are_refused(model, tmp_path):
    two = CrossEncoder(write_cross_encoder(tmp_path / "two", labels=2))
    with pytest.raises(UserError, match="two: has 2 labels; rank needs a cross-encoder with one score"):
        two.rank("a", ["b"])
    for options, message in (
        ({"batch_size": 0}, "batch_size 0: must be"),
        ({"max_length": 65}, "max_length 65: must be a whole number from 3 to 64"),
        ({"dtype": "int8"}, "dtype 'int8' is not one of float32, bfloat16"),
    ):
        with pytest.raises(UserError, match=message):
            CrossEncoder(model.name, **options)
    with pytest.raises(UserError, match="document 1 is 3, not a string"):
        model.rank("a", ["b", 3])
    with pytest.raises(UserError, match="top_k 0: must be"):
        model.rank("a", ["b"], top_k=0)
