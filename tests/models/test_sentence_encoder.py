import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_batch, random_model, row_keys

from simcse_jax.models import parameters
from simcse_jax.models.pooling import pool
from simcse_jax.models.sentence_encoder import build

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(("dtype", "pooler"), [(np.float32, "max"), (jnp.bfloat16, "avg_top2")])
def test_embeddings_are_pooled_hidden_states_through_the_head_in_float32(dtype, pooler):
    graph, params, _ = random_model(dtype=dtype, num_layers=1)
    ids, mask = (array[:, 0] for array in random_batch(3, 8))

    @jax.jit
    def run(params, keys):
        model = parameters.merge(graph, params)
        pooled = pool(model.encoder(ids, mask, dropout_keys=keys), mask, pooler)
        return pooled, model(ids, mask, pooler=pooler, use_head=True, dropout_keys=keys)

    pooled, embeddings = run(params, row_keys(3))
    assert pooled.dtype == embeddings.dtype == jnp.float32
    expected = np.tanh(np.asarray(pooled) @ params["head.kernel"] + params["head.bias"])
    np.testing.assert_allclose(embeddings, expected, atol=1e-5)


def test_build_gives_the_model_without_arrays():
    for with_head in (True, False):
        graph, params, config = random_model(with_head=with_head)
        built, shapes = build(config, with_head)
        assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, params) and built == graph
