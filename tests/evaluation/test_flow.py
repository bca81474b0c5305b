import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.data import raises

from simcse_jax.evaluation import flow
from simcse_jax.host import progress

SIZE = 13  # channels: they halve unevenly


def correlated(rows: int, seed: int = 0) -> np.ndarray:
    """Rows of N(μ, Σ), with channels of very different sizes."""
    generator = np.random.default_rng(seed)
    mixing = generator.normal(0, 1, (SIZE, SIZE)) * np.geomspace(0.05, 3, SIZE)
    return (5 + generator.normal(0, 1, (rows, SIZE)) @ mixing).astype(np.float32)


X, OTHERS = np.split(correlated(1024), 2)


@pytest.fixture(scope="module")
def fitted():
    """The parameters by epochs; the last ones are trained so long that the couplings do something."""
    return {epochs: flow.fit(X, seed=3, epochs=epochs) for epochs in (0, 4, 80)}


def test_the_map_can_be_inverted_has_the_jacobian_s_determinant_and_brings_rows_nearer_to_normal(fitted):
    params = fitted[80]
    assert all(np.abs(level["last"]["kernel"]).max(axis=(1, 2)).min() > 1e-3 for level in params)
    z, log_det = flow._forward(params, X)
    assert z.shape == X.shape and np.abs(np.asarray(z) - X).max() > 1
    jacobians = jax.jit(jax.vmap(jax.jacobian(lambda one: flow.forward(params, one[None])[0][0])))(jnp.asarray(X[:3]))
    for jacobian in np.asarray(jacobians, np.float64):
        sign, expected = np.linalg.slogdet(jacobian)
        assert abs(sign) == 1 and float(log_det) == pytest.approx(expected, abs=1e-3)
        assert np.abs(jacobian - np.diag(np.diag(jacobian))).max() > 0.01  # it mixes channels
    density = -0.5 * np.sum(np.square(np.asarray(z, np.float64)) + np.log(2 * np.pi), axis=1) + float(log_det)
    np.testing.assert_allclose(flow._log_likelihood(params, X), density, rtol=1e-4)
    z = flow.transform(fitted[0], X)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=1e-3)
    means = [float(flow._log_likelihood(params, OTHERS).mean()) for params in fitted.values()]
    assert means[0] + 0.05 < means[1] and means[1] + 0.5 < means[2]
    first, last = (np.linalg.norm(np.cov(flow.transform(fitted[epochs], X).T) - np.eye(SIZE)) for epochs in (0, 80))
    assert last < 0.6 * first
    x = X.copy()
    x[:, 6:] = 7.0
    x[::2, 6] += 5e-7  # rounding
    params = [flow.fit(x, epochs=epochs) for epochs in (0, 5)]
    before, after = (float(flow._log_likelihood(each, x).mean()) for each in params)
    assert before < after and np.abs(flow.transform(params[1], x)).max() < 20
    x[:, 0] *= 1e30
    raises("likelihood is not finite", flow.fit, x)


def test_the_seed_decides_rows_are_mapped_alike_in_blocks_and_the_fit_shows_its_progress(monkeypatch, capsys, fitted):
    one, same, other = (flow.transform(flow.fit(X, seed=seed), X) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-4
    monkeypatch.setattr(progress, "LINE_SECONDS", 0)
    flow.fit(X, epochs=2)
    assert "16 of 16 batches" in capsys.readouterr().err
    x = correlated(flow.BLOCK + 5, seed=1)
    z = flow.transform(fitted[80], x)
    np.testing.assert_allclose(z[:512], flow._forward(fitted[80], x[:512])[0], atol=1e-4)
    np.testing.assert_allclose(flow.transform(fitted[80], x[-3:]), z[-3:], atol=1e-5)
    assert flow.transform(fitted[80], x[:0]).shape == (0, SIZE)
