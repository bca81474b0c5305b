import jax
import jax.numpy as jnp
import numpy as np
from support import random_model

from simcse_jax.models import parameters
from simcse_jax.models.by_layer import Part, alike, gathered, in_parts, whole


class Doubled:
    def gather(self, sent, part):
        return 2 * sent

    def rows(self, part, numbers):
        return 2 * part[numbers]


def layers_of(model_type, **changes):
    graph, params, config = random_model(model_type, num_layers=0)
    encoder = parameters.merge(graph, params | changes).encoder
    layers = [encoder.layers[group] for group in config.groups]
    return alike(layers, [number in config.local_layers for number in range(config.num_layers)])


def test_layers_are_alike_if_only_their_values_differ_and_modules_in_parts_become_whole():
    assert layers_of("bert") == [range(2)]
    assert layers_of("albert") == [range(1), range(1, 3)]  # the first two share their parameters
    assert layers_of("modernbert") == [range(1), range(1, 2)]  # the first one has a norm less
    part = jax.ShapeDtypeStruct((1,), jnp.float32)
    in_part = {f"encoder.layers.{number}.qkv.kernel": Part(part, part, Doubled()) for number in (0, 1)}
    assert layers_of("bert", **in_part) == [range(1), range(1, 2)]  # by placements that differ
    graph, params, _ = random_model()
    placement = Doubled()
    halves = {
        name: Part(value / 2, value / 2, placement) if name.endswith("kernel") else value
        for name, value in params.items()
    }
    encoder = parameters.merge(graph, halves).encoder
    assert in_parts(encoder.layers) and not in_parts(parameters.merge(graph, params).encoder)
    together = gathered(encoder.layers[1])
    assert not in_parts(together)
    np.testing.assert_array_equal(together.qkv.kernel[...], params["encoder.layers.1.qkv.kernel"])
    assert all(np.array_equal(value, params[name]) for name, value in whole(halves).items())
    assert parameters.copies(halves, jnp.bfloat16) == {}
