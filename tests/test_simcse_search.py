import dataclasses
import gc
import json
import pickle
import shutil
import weakref

import numpy as np
import pytest
from support import PROMPTS, sentences

from simcse_jax import SimCSE
from simcse_jax.errors import UserError
from simcse_jax.vectors.quantization import ranges_of


@pytest.fixture(scope="module")
def model(prompted):
    return SimCSE(prompted)


def test_the_model_s_similarity_compares_and_queries_and_documents_have_their_prompts(model):
    first, second = sentences(3), sentences(4, seed=1)
    a, b = model.encode(first), model.encode(second)
    expected = -np.linalg.norm(a[:, None] - b, axis=2)
    np.testing.assert_allclose(model.similarity(first, second), expected, rtol=1e-5)
    np.testing.assert_allclose(model.similarity(a, b), expected, rtol=1e-5)
    texts = sentences(6)
    model.build_index(texts)
    (found,) = model.search(["the cat"], top_k=6)
    distances = np.linalg.norm(model.encode_document(texts) - model.encode_query("the cat"), axis=1)
    assert [result.row for result in found] == np.argsort(distances, kind="stable").tolist()
    np.testing.assert_allclose([-result.score for result in found], np.sort(distances), rtol=1e-5)


def test_an_index_remembers_how_it_was_made(model, prompted, tmp_path):
    model.build_index(sentences(3))
    model.save_index(tmp_path / "index")
    same = SimCSE(prompted)
    same.load_index(tmp_path / "index")
    assert same.index.similarity == "euclidean" and same.search("the cat") == model.search("the cat")
    assert "/" not in json.loads((tmp_path / "index" / "index.json").read_text())["model"]["name"]
    copy = shutil.copytree(prompted, tmp_path / "other" / "prompted")
    SimCSE(copy).load_index(tmp_path / "index")
    tokenizer = (copy / "tokenizer.json").read_text()
    (copy / "tokenizer.json").write_text(tokenizer.replace('"cat"', '"CAT"').replace('"dog"', '"cat"'))
    with pytest.raises(UserError, match="weights others, or other settings"):
        SimCSE(copy).load_index(tmp_path / "index")
    for change, message in (
        ({"similarity_fn_name": "dot"}, "similarity 'euclidean', not 'dot'"),
        ({"prompts": PROMPTS | {"document": "in "}}, "prompt 'on ', not 'in '"),
        ({"truncate_dim": 9}, "dimension 8, not "),
    ):
        other = SimCSE(prompted)
        vars(other).update(change)
        with pytest.raises(UserError, match=message):
            other.load_index(tmp_path / "index")


@pytest.mark.parametrize("change", [{"max_length": 5}, {"prompts": {"document": "in "}}, {"pooler": "avg"}])
def test_an_index_stays_that_of_the_model_that_made_it(tiny_bert, tmp_path, change):
    model, texts = SimCSE(str(tiny_bert)), sentences(10)
    model.build_index(texts)
    before = {name: getattr(model, name) for name in change}
    vars(model).update(change)
    with pytest.raises(UserError, match=r"the index: an index of .*tiny-bert.*, not of .*build another"):
        model.add_to_index(["the cat"])
    assert model.index.sentences == texts
    model.save_index(tmp_path / "index")
    with pytest.raises(UserError, match="an index of"):
        model.load_index(tmp_path / "index")
    SimCSE(str(tiny_bert)).load_index(tmp_path / "index")
    vars(model).update(before)
    model.add_to_index(["the cat"])
    model.load_index(tmp_path / "index")


def test_queries_are_pooled_as_the_index_was_and_a_changed_copy_has_an_identity_of_its_own(tiny_bert):
    model, texts = SimCSE(str(tiny_bert)), sentences(10)
    model.build_index(texts)
    model.max_length, model.prompts = 5, {"query": "on "}  # queries may have their own
    expected = model.search(texts[0])
    vector = model.encode_query(texts[0])
    for name, value in (("pooler", "avg"), ("truncate_dim", 9)):
        before = getattr(model, name)
        setattr(model, name, value)
        with pytest.raises(UserError, match=r"the index: an index of .*, not of .*set the model's fields back"):
            model.search(texts[0])
        setattr(model, name, before)
    assert model.search(vector) == model.search(texts[0]) == expected
    assert model.search(vector, top_k=np.int64(2)) == expected[:2]
    before = model.identity()
    state = model.__getstate__()
    assert SimCSE.__new__(SimCSE).__setstate__(state) is None
    zero = {name: np.zeros_like(value) for name, value in state["model"].params.items()}
    other = SimCSE.__new__(SimCSE)
    other.__setstate__(state | {"model": dataclasses.replace(state["model"], params=zero)})
    assert other.identity() != before == pickle.loads(pickle.dumps(model)).identity()


def test_unit_length_is_part_of_a_model_that_compares_by_dot_product_and_a_dropped_index_is_forgotten(tiny_bert):
    model = SimCSE(str(tiny_bert))
    model.build_index(["a cat", "a dog"])
    index = weakref.ref(model.index)
    model.index = None
    gc.collect()
    assert index() is None
    model = SimCSE(str(tiny_bert))
    model.similarity_fn_name = "dot"
    model.build_index(["a cat"])
    model.normalize = True
    with pytest.raises(UserError, match="weights others, or other settings"):
        model.add_to_index(["a dog"])
    model.build_index(["a cat"])
    model.add_to_index(["a dog"])


def test_a_whole_table_and_what_has_no_order_are_refused(model):
    model.build_index(["a"])
    for given, message in (
        ({"id": ["1"], "text": ["a"]}, "a dict.*: give one column of sentences"),
        ({"a", "b"}, "a set, not a list"),
    ):
        calls = (model.encode, model.build_index, model.add_to_index, model.search, model.encode_counted)
        for call in (*calls, lambda given: model.similarity("a", given)):
            with pytest.raises(UserError, match=message):
                call(given)


def test_an_index_in_bytes_keeps_its_ranges(tiny_bert, tmp_path):
    model, texts = SimCSE(str(tiny_bert)), sentences(120)
    unit = model.encode(texts, normalize_to_unit=True)
    model.build_index(texts, precision="int8")
    np.testing.assert_allclose(model.index.ranges, ranges_of(unit), atol=1e-5)
    ranges = model.index.ranges.copy()
    model.add_to_index(["the cat"])
    model.save_index(tmp_path / "index")
    same = SimCSE(str(tiny_bert))
    same.load_index(tmp_path / "index")
    assert same.index.precision == "int8" and same.search("the cat") == model.search("the cat")
    assert same.search("the cat", 1)[0].score == pytest.approx(1, abs=0.02)
    same.add_to_index(["a dog"])
    np.testing.assert_array_equal(same.index.ranges, ranges)
    np.save(tmp_path / "ranges.npy", ranges)
    for given in (ranges, tmp_path / "ranges.npy"):
        same.build_index(texts[:1], precision="int8", ranges=given)
        np.testing.assert_array_equal(same.index.ranges, ranges)
    same.truncate_dim = 16
    with pytest.raises(UserError, match="the index has embeddings of 32 elements"):
        same.add_to_index(["a dog"])
    same.truncate_dim = None
    same.build_index(texts, precision="binary")
    assert same.search("the cat")[0].score <= 1
