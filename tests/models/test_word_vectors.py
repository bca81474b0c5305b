import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from simcse_jax.models import parameters
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.sentence_encoder import SentenceEncoder

IDS, MASK = np.int32([[1, 2, 0], [3, 0, 0], [0, 0, 0]]), np.int32([[1, 1, 0], [1, 0, 0], [0, 0, 0]])


def test_an_encoder_without_layers_gives_the_words_vectors():
    config = EncoderConfig.of_words(5, 4)
    assert (config.num_layers, config.max_length) == (0, 4096)
    graph, params = parameters.split(SentenceEncoder(config, with_head=False, rngs=nnx.Rngs(0)))
    assert list(params) == [parameters.WORD_EMBEDDING]
    table = jax.random.normal(jax.random.key(0), (5, 4))
    model = parameters.merge(graph, {parameters.WORD_EMBEDDING: table})
    (states,) = model.encoder(IDS, MASK)
    np.testing.assert_array_equal(states, table[IDS])
    expected = jnp.stack([(table[1] + table[2]) / 2, table[3], jnp.zeros(4)])
    np.testing.assert_allclose(model(IDS, MASK, pooler="avg", use_head=False), expected, atol=1e-6)
    unpadded = model(IDS, MASK, pooler="avg", use_head=False, most_tokens=4)
    np.testing.assert_allclose(unpadded, expected, atol=1e-6)
