import numpy as np
import pytest
from support import sentences

from simcse_jax import SimCSE
from simcse_jax.adapters.texts import embed_documents, embed_query, fingerprint, open_model, plain
from simcse_jax.errors import UserError
from simcse_jax.vectors.quantization import ranges_of


@pytest.fixture(scope="module")
def model(prompted):
    return SimCSE(prompted)


def test_texts_are_encoded_as_by_the_class_wrong_options_refused_and_fingerprints_tell_models_apart(
    model, prompted, capfd, tmp_path
):
    for options, dtype, named in (
        ({"pooler": "min"}, None, "'min' is not one of"),
        ({"precision": "int8"}, None, "^precision int8: give ranges= too"),
        ({"precision": "int8", "ranges": [[0.0], [1.0]]}, None, "ranges"),
        ({}, "bfloat16", "^dtype 'bfloat16'"),
    ):
        with pytest.raises(UserError, match=named):
            open_model(model, dtype, options)
    with pytest.raises(UserError, match=r"^'the cat': a string"):
        embed_documents(model, "the cat", {})
    with pytest.raises(UserError, match=r"^\['the cat'\]: not a string"):
        embed_query(model, ["the cat"], {})
    assert open_model(model, "float32", {"show_progress_bar": True}) is model and capfd.readouterr().err == ""
    assert open_model(prompted, "bfloat16", {}).dtype == "bfloat16"
    assert open_model(str(prompted), None, {}).dtype == "float32"
    texts, ranges = sentences(3), ranges_of(model.encode(sentences(9)))
    for options in (
        {},
        {"normalize_to_unit": True, "truncate_dim": 3, "batch_size": 2, "pooler": "cls_before_pooler"},
        {"max_length": 12},
        {"precision": "int8", "ranges": ranges},
        {"precision": "ubinary"},
    ):
        assert embed_query(model, texts[0], options) == model.encode_query(texts[0], **options).tolist()
        assert embed_documents(model, tuple(texts), options) == model.encode_document(texts, **options).tolist()
    assert embed_documents(model, [], {}) == []
    own = {"query_prompt": "a bird ", "document_prompt": ""}
    assert embed_query(model, texts[0], own) == model.encode(texts[0], prompt="a bird ").tolist()
    assert embed_documents(model, texts, own) == model.encode(texts, prompt="").tolist()
    ranges = np.float32([[0.1, 0.2], [0.3, 0.4]])
    again = plain({"precision": "int8", "ranges": ranges})
    assert type(again["ranges"]) is list
    np.testing.assert_array_equal(np.float32(again["ranges"]), ranges)
    assert plain({"ranges": tmp_path}) == {"ranges": str(tmp_path)}
    assert plain({"ranges": None, "max_length": 5}) == {"ranges": None, "max_length": 5}
    other = SimCSE(prompted)
    assert fingerprint(other) == fingerprint(model)
    other.prompts["query"] = "a "
    assert len({fingerprint(each) for each in (model, other, SimCSE(prompted, pooler="cls"))}) == 3
