import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from support import random_batch, random_model

from simcse_jax.models import parameters
from simcse_jax.models.sentence_encoder import SentenceEncoder


def test_split_and_merge_are_inverses_also_without_arrays_and_parts_of_a_run_s_parameters():
    graph, params, _ = random_model("mpnet")
    assert {"encoder.layers.0.qkv.kernel", "encoder.relative_bias", parameters.WORD_EMBEDDING} <= set(params)
    model = parameters.merge(graph, params)
    again, same = parameters.split(model)
    assert (again, list(same)) == (graph, list(params))
    for name, value in params.items():
        np.testing.assert_array_equal(same[name], value)
    # NumPy arrays, as read from files, work too.
    numpy_s = parameters.merge(graph, {name: np.asarray(value) for name, value in params.items()})
    ids, mask = (array[:, 0] for array in random_batch(2, 5))
    encode = nnx.jit(lambda model: model.encoder(ids, mask)[-1])
    np.testing.assert_array_equal(encode(numpy_s), encode(model))
    _, params, config = random_model()
    graph, shapes = parameters.abstract(lambda: SentenceEncoder(config, with_head=True, rngs=nnx.Rngs(0)))
    expected = {name: (value.shape, value.dtype) for name, value in params.items()}
    assert expected == {name: (value.shape, value.dtype) for name, value in shapes.items()}
    assert all(isinstance(value, jax.ShapeDtypeStruct) for value in shapes.values())
    assert list(parameters.split(parameters.merge(graph, params))[1]) == list(params)
    own = {"encoder.a": 1, "head.kernel": 2}
    trained = own | {"second.encoder.a": 3, "second.head.kernel": 4, "language_model.bias": 5, "softmax_nli.kernel": 6}
    assert parameters.sentence_encoder(trained) == own
    assert parameters.sentence_encoder(trained, tower=1) == {"encoder.a": 3, "head.kernel": 4}
    assert parameters.with_encoder(trained, 0) == trained
    swapped = {"encoder.a": 3, "head.kernel": 4, "language_model.bias": 5, "softmax_nli.kernel": 6}
    assert parameters.with_encoder(trained, 1) == swapped
    assert parameters.subset(trained, parameters.LANGUAGE_MODEL) == {"bias": 5}


def test_products_read_the_copies_of_their_parameters_and_nothing_else_does():
    graph, params, _ = random_model(dtype=jnp.bfloat16, num_layers=1)
    multiplied = [name for name in params if parameters.only_multiplied(name)]
    copies = parameters.copies(params, jnp.bfloat16)
    assert list(copies) == [name + parameters.COPY for name in multiplied]
    assert parameters.copies(params, jnp.float32) == {}
    copied = params | copies
    assert all(value.dtype == jnp.bfloat16 for value in copies.values())
    assert parameters.sentence_encoder(copied).keys() == copied.keys()  # chosen by the same prefixes
    ids, mask = (array[:, 0] for array in random_batch(2, 5))

    @jax.jit
    def encode(params):
        return parameters.merge(graph, params).encoder(ids, mask)[-1].astype(jnp.float32)

    np.testing.assert_array_equal(encode(copied), encode(params))
    doubled = encode(copied | {name: 2 * value for name, value in copies.items()})
    np.testing.assert_array_equal(doubled, encode(params | {name: 2 * params[name] for name in multiplied}))
    assert not np.array_equal(doubled, encode(params))
