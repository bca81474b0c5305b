import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import CONFIGS, random_batch, row_keys

from simcse_jax.huggingface.peft import linear_maps
from simcse_jax.models import lora, parameters, partial
from simcse_jax.models.config import EncoderConfig, Lora, Partial, Site
from simcse_jax.models.padding import Padded
from simcse_jax.models.sentence_encoder import build

pytestmark = pytest.mark.exact


def model(kind="bert", rank=3, maps=None, frozen_layers=0, alpha=6.0, dtype=jnp.float32, start=False, num_layers=None):
    """(graph, params, config) with LoRA at some linear maps, or all; B is zero only at a `start`."""
    config = EncoderConfig.from_hugging_face(CONFIGS[kind], "test")
    config = config if num_layers is None else config.keep_layers(num_layers)
    known = linear_maps(kind)
    sites = tuple(known[name] for name in maps or known)
    config = dataclasses.replace(config, partial=Partial(False, frozen_layers, Lora(rank, alpha, sites)))
    graph, shapes = build(config, with_head=False, dtype=dtype)
    generator = np.random.default_rng(0)
    params = {
        name: jnp.float32(name.endswith("scale")) + generator.normal(0, 0.2, shape.shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    return graph, params | lora.fresh(config, jax.random.key(1)) if start else params, config


@functools.partial(jax.jit, static_argnums=0, static_argnames=("first_only", "most_tokens"))
def states(graph, params, ids, mask, draws=None, **options):
    return parameters.merge(graph, params).encoder(ids, mask, **draws or {}, **options)


def batch(rows=3, length=9):
    ids, mask = random_batch(rows, length)
    return ids[:, 0] % 30, mask[:, 0]


DTYPES = (jnp.float32, jnp.bfloat16)
MOST = ("bert", "mpnet", "distilbert", "electra", "albert", "nomic_bert", "qwen3", "gemma3_text")
MOST = [pytest.param(kind, marks=pytest.mark.slow) for kind in MOST]


@pytest.mark.parametrize("kind", ["modernbert", *MOST])
def test_a_fresh_one_changes_nothing_and_a_merged_one_computes_the_same(kind):
    graph, params, config = model(kind)
    assert len(lora.names(config)) == len(set(config.groups)) * len(linear_maps(kind))
    plain, _ = build(dataclasses.replace(config, partial=None), with_head=False)
    of_base, ids, mask = {name: value for name, value in params.items() if ".lora." not in name}, *batch()
    start = states(graph, of_base | lora.fresh(config, jax.random.key(1)), ids, mask)
    merged, unmerged = partial.merged(params, config), states(graph, params, ids, mask)
    assert merged.keys() == of_base.keys()
    for found, expected in ((start, of_base), (unmerged, merged)):
        for ours, theirs in zip(found, states(plain, expected, ids, mask), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert np.abs(unmerged[-1] - start[-1]).max() > 0.1
    first = states(graph, params, ids, mask, first_only=True)[-1]
    np.testing.assert_allclose(first[:, 0], unmerged[-1][:, 0], atol=1e-5)


def test_with_the_identity_as_a_b_makes_the_full_matrix_step():
    """SGD's steps of B and of W are the same; of a fused product, of one of three joined ones, and of a narrow one."""
    for kind, name in (("bert", "attention.self.query"), ("modernbert", "attn.Wqkv"), ("bert", "output.dense")):
        site = linear_maps(kind)[name]
        width = CONFIGS[kind]["intermediate_size" if site.part == "output" else "hidden_size"]
        graph, params, config = model(kind, rank=width, maps=[name], alpha=float(width), num_layers=1)
        ids, mask = batch()
        ((a, b),) = lora.names(config).values()
        kernel = f"encoder.layers.0.{site.part}.kernel"
        params |= {a: jnp.eye(width), b: 0 * params[b]}

        def loss(changed, graph=graph, params=params, ids=ids, mask=mask):
            hidden = parameters.merge(graph, {**params, **changed}).encoder(ids, mask)[-1]
            return jnp.sum(jnp.sin(hidden) * mask[..., None])

        gradient = jax.jit(jax.grad(loss))({b: params[b], kernel: params[kernel]})
        columns = gradient[b].shape[1]
        full = gradient[kernel][:, site.index * columns : (site.index + 1) * columns]
        step = 0.1 / np.abs(full).max()
        np.testing.assert_allclose(step * gradient[b], step * full, atol=1e-5)


@pytest.mark.slow
def test_masks_belong_to_examples_and_to_linear_maps():
    graph, params, _ = model()
    ids, mask = batch(length=9)
    longer = [np.pad(part, ((0, 0), (0, 5))) for part in (ids, mask)]
    options = {"dropout_keys": row_keys(3), "dropout_rate": 0.0, "lora_dropout_rate": 0.3}

    def last(ids, mask, *given, **more):
        found = states(graph, params, ids, mask, *given, **more)[-1]
        return np.asarray(found) * mask[:, : found.shape[1], None]

    full, plain = last(ids, mask, options), last(ids, mask)
    for more in ({}, {"most_tokens": int(mask.sum()) + 1}):
        np.testing.assert_allclose(last(*longer, options, **more)[:, :9], full, atol=1e-5)
    np.testing.assert_allclose(last(ids, mask, options, first_only=True)[:, 0], full[:, 0], atol=1e-5)
    row = last(ids[1:2], mask[1:2], options | {"dropout_keys": row_keys(3)[1:2]})
    np.testing.assert_allclose(row[0], full[1], atol=1e-5)
    for other in (last(ids, mask, options | {"dropout_keys": row_keys(3, seed=1)}), plain):
        assert np.abs(other - full).max() > 0.01
    np.testing.assert_allclose(last(ids, mask, options | {"lora_dropout_rate": 0.0}), plain, atol=1e-5)


@pytest.mark.slow
def test_masks_are_bits_of_their_own():
    graph, params, config = model()
    encoder, kept = parameters.merge(graph, params).encoder, []
    draw = jax.jit(lambda keys: [encoder.draw_masks(Padded(n), n, keys, 0.1, None, 0.3)[1] for n in (9, 14)])
    for drawn in draw(row_keys(3)):
        of_lora = {(number, name): mask for number, one in enumerate(drawn) for name, mask in one.lora.items()}
        kept.append({place: np.asarray(mask.keep[:, :9]) for place, mask in of_lora.items()})
        assert len(kept[-1]) == 2 * 6 and kept[-1][0, "output"].shape == (3, 9, config.intermediate_size)
    for place, keep in kept[0].items():
        np.testing.assert_array_equal(keep, kept[1][place])
        assert 0.6 < keep.mean() < 0.8
    alike = [keep for keep in kept[1].values() if keep.shape[-1] == config.hidden_size]
    alike += [mask.keep[:, :9] for one in drawn for mask in (one.attention_output, one.output)]
    assert len({np.asarray(keep).tobytes() for keep in alike}) == len(alike) == 2 * 7


@pytest.mark.slow
def test_bfloat16_has_float32_parameters_and_nearly_the_same_states():
    (graph, params, _), (rounded, *_) = (model("modernbert", maps=["attn.Wqkv"], dtype=x) for x in DTYPES)
    exact, found = (states(each, params, *batch())[-1] for each in (graph, rounded))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float32(found), exact, atol=0.1)


def test_frozen_layers_have_none_shared_ones_one_set_and_first_values_are_uniform_and_zero():
    _, _, config = model("bert", frozen_layers=1, maps=["attention.self.value"])
    assert list(lora.names(config)) == [(1, Site("qkv", 2, 3))] and Site("qkv", 2, 3).name == "qkv_2"
    _, params, config = model("albert", maps=["ffn"])
    assert sorted(name for name in params if ".lora." in name) == sorted(
        f"encoder.layers.{group}.lora.intermediate.{part}.kernel" for group in (0, 1) for part in "ab"
    )
    _, params, config = model(rank=16, start=True)
    for a, b in lora.names(config).values():
        bound = 1 / np.sqrt(params[a].shape[0])
        assert bound * 0.95 < np.abs(params[a]).max() <= bound and not np.any(params[b])
    assert len({np.asarray(params[a]).tobytes() for a, _ in lora.names(config).values()}) == 12
