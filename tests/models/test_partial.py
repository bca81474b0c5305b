import dataclasses

import numpy as np
import pytest
from support import random_model

from simcse_jax.models import partial
from simcse_jax.models.config import Lora, Partial, Site
from simcse_jax.models.parameters import SECOND


def names(config, **fields):
    encoder = dataclasses.replace(config, partial=Partial(**fields) if fields else None)
    paths = [
        "encoder.embeddings.word.embedding",
        "encoder.embeddings.projection.kernel",
        "encoder.relative_bias",
        "encoder.layers.0.qkv.kernel",
        "encoder.layers.1.qkv.kernel",
        "encoder.layers.1.lora.qkv.a.kernel",
        "encoder.final_norm.scale",
    ]
    others = ["head.kernel", "discriminator.encoder.layers.0.qkv.kernel", "projector.0.kernel", "language_model.bias"]
    paths = [*paths, *(SECOND + path for path in paths), *others]
    trained, frozen = partial.split(dict.fromkeys(paths), encoder)
    assert set(others) <= trained.keys() and not any(name.startswith(SECOND) for name in frozen)
    assert partial.whole(trained, frozen).keys() == set(paths) and not any(SECOND + name in trained for name in frozen)
    return [name.removeprefix("encoder.") for name in frozen]


def test_only_what_the_fields_name_is_frozen_and_in_a_step_a_generator_is_left_out():
    _, _, config = random_model("albert")
    assert not names(config)
    tables = ["embeddings.word.embedding", "embeddings.projection.kernel", "relative_bias"]
    assert names(config, frozen_embeddings=True) == tables
    config = dataclasses.replace(config, num_layers=2, layer_groups=None)
    assert names(config, frozen_layers=1) == ["layers.0.qkv.kernel"]
    last = ["layers.0.qkv.kernel", "layers.1.qkv.kernel", "layers.1.lora.qkv.a.kernel", "final_norm.scale"]
    assert names(config, frozen_layers=2) == last
    own = Lora(2, 4.0, (Site("qkv"),))
    assert names(config, lora=own) == [*tables, "layers.0.qkv.kernel", "layers.1.qkv.kernel", "final_norm.scale"]
    frozen = partial.in_step({"encoder.x": 1}) | {"encoder.x": 2, "language_model.bias": 3}
    assert partial.of_step({"head.kernel": 0}, frozen) == {"encoder.x": 1, "head.kernel": 0}
    assert partial.of_step({"head.kernel": 0}, None) == {"head.kernel": 0}
    _, params, config = random_model()
    assert partial.merged(params, config) == params


@pytest.mark.parametrize("towers", [1, 2])
def test_each_encoder_has_its_own_products(towers):
    _, params, config = random_model()
    encoder = dataclasses.replace(config, partial=Partial(lora=Lora(1, 2.0, (Site("qkv", 2, 3),))))
    a, b = "encoder.layers.0.lora.qkv_2.a.kernel", "encoder.layers.0.lora.qkv_2.b.kernel"
    kernel, size = "encoder.layers.0.qkv.kernel", config.hidden_size
    own = {name.replace("layers.0", f"layers.{layer}"): np.ones((size, 1)) for name in (a,) for layer in (0, 1)}
    own |= {name.replace("layers.0", f"layers.{layer}"): np.ones((1, size)) for name in (b,) for layer in (0, 1)}
    base = {name: value for name, value in params.items() if name.startswith("encoder.")}
    trained = own | ({SECOND + name: 3 * value for name, value in own.items()} if towers == 2 else {})
    merged = partial.merged(partial.whole(trained, base), encoder)
    assert len(merged) == towers * len(base)
    for prefix, added in list({"": 2.0, SECOND: 18.0}.items())[:towers]:
        change = merged[prefix + kernel] - base[kernel]
        np.testing.assert_allclose(change[:, 2 * size :], added, rtol=1e-5)
        assert not np.any(change[:, : 2 * size])
