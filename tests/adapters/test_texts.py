import numpy as np
import pytest
from support import sentences

from simcse_jax import SimCSE
from simcse_jax.adapters.texts import TextEncoder
from simcse_jax.errors import UserError
from simcse_jax.vectors.quantization import ranges_of


@pytest.fixture(scope="module")
def model(prompted):
    return SimCSE(prompted)


def test_texts_are_encoded_as_by_the_class_wrong_options_refused_and_fingerprints_tell_models_apart(
    model, prompted, tmp_path
):
    for options, named in (
        ({"pooler": "min"}, "'min' is not one of"),
        ({"precision": "int8"}, "^int8 and uint8 need ranges="),
        ({"precision": "int8", "ranges": [[0.0], [1.0]]}, "ranges"),
    ):
        with pytest.raises(UserError, match=named):
            TextEncoder(model, **options)
    assert TextEncoder(model).model is model
    texts, ranges = sentences(3), ranges_of(model.encode(sentences(9)))
    for options in (
        {},
        {"normalize_to_unit": True, "truncate_dim": 3, "batch_size": 2, "pooler": "cls_before_pooler"},
        {"max_length": 12},
        {"precision": "int8", "ranges": ranges},
        {"precision": "ubinary"},
    ):
        encoder = TextEncoder(model, **options)
        assert encoder.query(texts[0]) == model.encode_query(texts[0], **options).tolist()
        assert encoder.documents(tuple(texts)) == model.encode_document(texts, **options).tolist()
    encoder = TextEncoder(prompted, query_prompt="a bird ", document_prompt="")
    assert encoder.documents([]) == []
    assert encoder.query(texts[0]) == model.encode(texts[0], prompt="a bird ").tolist()
    assert encoder.documents(texts) == model.encode(texts, prompt="").tolist()
    ranges = np.float32([[0.1, 0.2], [0.3, 0.4]])
    again = TextEncoder(model, precision="int8", ranges=ranges, truncate_dim=2).options
    assert type(again["ranges"]) is list
    np.testing.assert_array_equal(np.float32(again["ranges"]), ranges)
    np.save(tmp_path / "ranges.npy", ranges)
    named = {"precision": "int8", "truncate_dim": 2, "ranges": tmp_path / "ranges.npy"}
    assert TextEncoder(model, **named).options == named | {"ranges": str(tmp_path / "ranges.npy")}
    other = SimCSE(prompted)
    assert TextEncoder(other).fingerprint() == TextEncoder(model).fingerprint()
    other.prompts["query"] = "a "
    models = (model, other, SimCSE(prompted, pooler="cls"))
    assert len({TextEncoder(each).fingerprint() for each in models}) == 3
