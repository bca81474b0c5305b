import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.models.products import Copied, einsum, rounding, shifted, sum_over_tokens, written, written_and_summed

pytestmark = [pytest.mark.exact, pytest.mark.platforms]
SHAPES = {
    "nf,fg->ng": ((6, 8), (8, 4)),
    "bhqd,bhkd->bhqk": ((2, 3, 5, 8), (2, 3, 4, 8)),
    "bhqk,bhkd->bhqd": ((2, 3, 5, 4), (2, 3, 4, 8)),
}


def operands(subscripts):
    generator = np.random.default_rng(0)
    return [jnp.asarray(generator.normal(size=shape), jnp.float32) for shape in SHAPES[subscripts]]


def rounded(x):
    return np.asarray(x.astype(jnp.bfloat16), np.float64)


@pytest.mark.parametrize("subscripts", SHAPES)
def test_float32_is_exact_and_bfloat16_rounds_factors_alone_of_many_at_once_too_with_a_fixed_layout_on_cpus(subscripts):
    x, y = operands(subscripts)
    exact, found = (einsum(subscripts, x, y, dtype) for dtype in (jnp.float32, jnp.bfloat16))
    np.testing.assert_allclose(exact, np.einsum(subscripts, np.float64(x), np.float64(y)), atol=1e-5)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, np.einsum(subscripts, rounded(x), rounded(y)), atol=1e-5)
    y = y.astype(jnp.bfloat16)
    product, pull = jax.vjp(lambda x, y: einsum(subscripts, x, y, jnp.bfloat16), x, y)
    gradient = jnp.asarray(np.random.default_rng(1).normal(size=product.shape), jnp.float32)
    dx, dy = pull(gradient)
    assert (dx.dtype, dy.dtype) == (jnp.float32, jnp.bfloat16)
    _, exact = jax.vjp(lambda x, y: jnp.einsum(subscripts, x, y), jnp.float32(rounded(x)), y.astype(jnp.float32))
    expected_x, expected_y = exact(jnp.float32(rounded(gradient)))
    np.testing.assert_allclose(dx, expected_x, atol=1e-5)
    np.testing.assert_allclose(dy.astype(jnp.float32), expected_y, rtol=2**-8, atol=1e-5)
    x, y = (jnp.stack([factor, 2 * factor, factor[::-1]]) for factor in operands(subscripts))
    gradients = jax.grad(lambda x, y: jnp.sum(jnp.sin(einsum(subscripts, x, y, jnp.bfloat16))), argnums=(0, 1))
    at_once, one = jax.jit(jax.vmap(gradients))(x, y), jax.jit(gradients)
    for many, ones in zip(at_once, zip(*(one(*each) for each in zip(x, y, strict=True)), strict=True), strict=True):
        np.testing.assert_allclose(many, jnp.stack(ones), atol=1e-5)
    x, y = operands(subscripts)
    step = jax.jit(jax.grad(lambda x, y: jnp.sum(einsum(subscripts, x, y, jnp.bfloat16) ** 2), argnums=(0, 1)))
    for platform in ("cpu", "tpu"):
        text = step.trace(x, y).lower(lowering_platforms=(platform,)).as_text()
        assert re.findall(r"dot_general.* contracting_dims = \[([\d, ]+)\] x", text) == [str(x.ndim - 1)] * 3
        products = [line for line in text.splitlines() if "dot_general" in line]
        assert all("xbf16>, tensor" in line and "xf32>, tensor" not in line for line in products), products
        layouts = re.findall(r"LayoutConstraint.* result_layouts = \[dense<\[([\d, ]+)\]>", text)
        assert layouts == ([", ".join(map(str, reversed(range(x.ndim))))] if platform == "cpu" else [])


def test_a_copied_factor_is_read_in_its_place_and_the_gradient_is_the_parameter_s():
    x, y = operands("nf,fg->ng")

    def value_and_gradients(make):
        def product(x, y):
            return jnp.sum(jnp.sin(einsum("nf,fg->ng", x, make(y), jnp.bfloat16)))

        return jax.jit(jax.value_and_grad(product, argnums=(0, 1)))(x, y)

    def copied(y):
        return Copied(jax.lax.stop_gradient(y.astype(jnp.bfloat16)), y)

    expected, found = value_and_gradients(lambda y: y), value_and_gradients(copied)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert found[1][1].dtype == jnp.float32
    # The copy is read, and nothing else: twice as large, it gives another product, and a slice of it a slice.
    other = Copied(2 * y.astype(jnp.bfloat16), y)
    product = einsum("nf,fg->ng", x, y, jnp.bfloat16)
    np.testing.assert_array_equal(einsum("nf,fg->ng", x, other, jnp.bfloat16), 2 * product)
    np.testing.assert_array_equal(einsum("nf,fg->ng", x, other[...][:, 1:3], jnp.bfloat16), 2 * product[:, 1:3])
    assert other.shape == y.shape


@pytest.mark.parametrize(("features", "transposed"), [(2, ["2x64", "2x8"]), (40, ["8x64"])])
def test_for_the_gradient_of_a_kernel_a_cpu_transposes_the_factor_that_takes_less(features, transposed):
    generator = np.random.default_rng(0)
    shapes = ((64, 8), (8, features), (64, features))
    x, kernel, gradient = (jnp.asarray(generator.normal(size=shape), jnp.float32) for shape in shapes)

    def of_kernel(x, kernel, gradient):
        return jax.vjp(lambda kernel: einsum("nf,fg->ng", x, kernel, jnp.bfloat16), kernel)[1](gradient)[0]

    step = jax.jit(of_kernel)
    np.testing.assert_allclose(step(x, kernel, gradient), rounded(x).T @ rounded(gradient), atol=1e-4)
    text = step.trace(x, kernel, gradient).lower(lowering_platforms=("cpu",)).as_text()
    assert re.findall(r"LayoutConstraint.*-> tensor<(\d+x\d+)x", text) == transposed


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_products_are_written_as_bfloat16_where_that_is_asked_for_and_free(platform):
    x, y = operands("nf,fg->ng")

    def types(rounds):
        step = jax.jit(jax.grad(lambda x, y: jnp.sum(einsum("nf,fg->ng", x, y, jnp.bfloat16) ** 2), argnums=(0, 1)))
        with rounding(rounds):
            text = step.trace(x, y).lower(lowering_platforms=(platform,)).as_text()
        return sorted(re.findall(r"dot_general.*-> tensor<[\dx]+x(\w+)>", text))

    assert types(False) == ["f32"] * 3  # and on a CPU always
    assert types(True) == (["f32"] * 3 if platform == "cpu" else ["bf16", "bf16", "f32"])


def as_on_gpus(*args, default, **others):
    """In place of `jax.lax.platform_dependent`: what GPUs compute, computed here."""
    return default(*args)


def test_a_sum_over_tokens_has_all_of_them_and_a_bias_has_the_gradient_of_what_is_written(monkeypatch):
    for tokens in ((5,), (16, 160), (2050,)):
        x = np.random.default_rng(0).integers(-9, 9, (*tokens, 3)).astype(np.float32)
        np.testing.assert_array_equal(jax.jit(sum_over_tokens)(jnp.asarray(x)), x.reshape(-1, 3).sum(0))
    y, target = np.random.default_rng(0).normal(size=(2, 3, 700, 8)).astype(np.float32)

    def gradients():
        def loss(y, bias):
            return jnp.sum(target * shifted(y, bias, jnp.bfloat16))

        return jax.jit(jax.grad(loss, argnums=(0, 1)))(jnp.asarray(y), jnp.ones(8))

    plain = gradients()
    with rounding(True):
        on_a_cpu = gradients()
        monkeypatch.setattr(jax.lax, "platform_dependent", as_on_gpus)
        on_a_gpu = gradients()
    jax.tree.map(np.testing.assert_array_equal, on_a_cpu, plain)
    written = np.asarray(jnp.asarray(target).astype(jnp.bfloat16).astype(jnp.float32))
    np.testing.assert_array_equal(on_a_gpu[0], written)
    np.testing.assert_allclose(on_a_gpu[1], written.sum((0, 1)), rtol=1e-5, atol=1e-4)


def test_gpus_write_rounded_numbers_and_what_is_summed_are_the_same(monkeypatch):
    step = jax.jit(lambda x: written(x, jnp.dtype(jnp.bfloat16)))
    for platform, barriers in (("cpu", 0), ("cuda", 1), ("tpu", 0)):
        text = step.trace(jnp.ones((2, 3))).lower(lowering_platforms=(platform,)).as_text()
        assert len(re.findall(r"optimization_barrier .*tensor<2x3xbf16>", text)) == barriers
    monkeypatch.setattr(jax.lax, "platform_dependent", as_on_gpus)
    x = np.random.default_rng(0).normal(size=(4, 96)) * 10.0 ** np.arange(-20, 20, 10)[:, None]
    x = jnp.asarray(x, jnp.float32)
    for found in jax.jit(lambda x: written_and_summed(x, jnp.dtype(jnp.bfloat16)))(x):
        np.testing.assert_array_equal(found, x.astype(jnp.bfloat16).astype(jnp.float32))
    assert all(found is x for found in written_and_summed(x, None))
