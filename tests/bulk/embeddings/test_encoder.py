from support.embedding_folders import encoder_of

from simcse_jax import SimCSE


def test_it_encodes_as_the_class_does_and_each_option_is_in_what_embeddings_depend_on(tiny_bert, encoder):
    options = {"pooler": "avg", "max_length": 5, "truncate_dim": 8, "prompt": "the ", "normalize": True}
    options |= {"num_layers": 1, "output_dtype": "float16", "batch_size": 3}
    for option, value in options.items():
        other = encoder_of(tiny_bert, **{option: value}).about()
        name = "--model" if option == "num_layers" else f"--{option.replace('_', '-')}"
        assert other.keys() == encoder.about().keys() and other[name] != encoder.about()[name]
    encoder = encoder_of(tiny_bert, max_length=5, truncate_dim=8, prompt="the ", normalize=True)
    found = encoder.encode(["cat dog cat dog cat dog"])
    expected = SimCSE(str(tiny_bert), truncate_dim=8).encode(
        ["cat dog cat dog cat dog"], max_length=5, prompt="the ", normalize_to_unit=True
    )
    assert (found.embeddings == expected).all() and found.cut == 1 and encoder.dimension == 8
