import pytest
from support.embedding_folders import encoder_of

from simcse_jax import SimCSE


@pytest.mark.parametrize(
    ("option", "name", "value"),
    [
        ("pooler", "--pooler", "avg"),
        ("max_length", "--max-length", 5),
        ("truncate_dim", "--truncate-dim", 8),
        ("prompt", "--prompt", "the "),
        ("normalize", "--normalize", True),
        ("num_layers", "--model", 1),
        ("output_dtype", "--output-dtype", "float16"),
        ("batch_size", "--batch-size", 3),
    ],
)
def test_each_option_is_in_what_the_embeddings_depend_on(option, name, value, tiny_bert, encoder):
    other = encoder_of(tiny_bert, **{option: value}).about()
    assert {key for key in other if other[key] != encoder.about()[key]} >= {name}


def test_it_encodes_as_the_class_does_with_the_same_options(tiny_bert):
    encoder = encoder_of(tiny_bert, max_length=5, truncate_dim=8, prompt="the ", normalize=True)
    found = encoder.encode(["cat dog cat dog cat dog"])
    expected = SimCSE(str(tiny_bert), truncate_dim=8).encode(
        ["cat dog cat dog cat dog"], max_length=5, prompt="the ", normalize_to_unit=True
    )
    assert (found.embeddings == expected).all() and found.cut == 1 and encoder.dimension == 8
