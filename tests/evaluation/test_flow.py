import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.errors import UserError
from simcse_jax.evaluation import flow
from simcse_jax.host import progress


def correlated(rows: int, size: int, seed: int = 0) -> np.ndarray:
    """Rows of N(μ, Σ), with channels of very different sizes."""
    generator = np.random.default_rng(seed)
    mixing = generator.normal(0, 1, (size, size)) * np.geomspace(0.05, 3, size)
    return (5 + generator.normal(0, 1, (rows, size)) @ mixing).astype(np.float32)


@pytest.fixture(scope="module", params=[8, 13])
def fitted(request):
    """(params, x): trained so long that the couplings do something; numbers of channels that halve evenly or not."""
    x = correlated(512, request.param)
    return flow.fit(x, seed=3, epochs=10), jnp.asarray(x)


def test_the_fit_shows_its_progress(monkeypatch, capsys):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0)
    flow.fit(correlated(192, 8), epochs=2)
    assert "6 of 6 batches" in capsys.readouterr().err


def test_the_map_is_inverted(fitted):
    params, x = fitted
    z, _ = flow.forward(params, x)
    assert z.shape == x.shape and np.abs(np.asarray(z) - x).max() > 1
    np.testing.assert_allclose(flow.inverse(params, z), x, atol=2e-4)


def test_the_couplings_are_in_use(fitted):
    params, _ = fitted
    assert all(np.abs(level["last"]["kernel"]).max(axis=(1, 2)).min() > 1e-3 for level in params)


def test_the_log_determinant_is_that_of_the_jacobian(fitted):
    params, x = fitted
    _, log_det = flow.forward(params, x)
    for row in x[:3]:
        jacobian = jax.jacobian(lambda one: flow.forward(params, one[None])[0][0])(jnp.asarray(row))
        sign, expected = np.linalg.slogdet(np.asarray(jacobian, np.float64))
        assert abs(sign) == 1
        assert float(log_det) == pytest.approx(expected, abs=1e-3)
        off_diagonal = np.asarray(jacobian) - np.diag(np.diag(jacobian))
        assert np.abs(off_diagonal).max() > 0.01  # it mixes channels


def test_the_likelihood_is_the_normal_density_of_the_latents(fitted):
    params, x = fitted
    z, log_det = flow.forward(params, x)
    expected = -0.5 * np.sum(np.square(np.asarray(z, np.float64)) + np.log(2 * np.pi), axis=1) + float(log_det)
    np.testing.assert_allclose(flow.log_likelihood(params, x), expected, rtol=1e-4)


def test_actnorm_starts_with_mean_0_and_variance_1():
    x = jnp.asarray(correlated(512, 8))
    z, _ = flow.forward(flow.init(jax.random.key(0), x), x)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=1e-3)


def test_training_raises_the_likelihood_also_of_other_rows_of_the_same_kind():
    x, others = np.split(correlated(4096, 8), 2)
    params = [flow.fit(x, epochs=epochs) for epochs in (0, 1, 10)]
    means = [float(flow.log_likelihood(each, jnp.asarray(others)).mean()) for each in params]
    assert means[0] + 0.05 < means[1] and means[1] + 0.5 < means[2]


def test_a_normal_distribution_comes_nearer_to_the_standard_one():
    x, others = np.split(correlated(4096, 8), 2)

    def distance(epochs: int) -> float:  # of the covariance from the identity
        return float(np.linalg.norm(np.cov(flow.transform(flow.fit(x, epochs=epochs), others).T) - np.eye(8)))

    first, last = distance(0), distance(20)
    assert last < 0.6 * first


def test_the_seed_decides():
    x = correlated(512, 8)
    one, same, other = (flow.transform(flow.fit(x, seed=seed), x) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 1e-4


def test_rows_are_mapped_alike_in_blocks_of_any_size():
    x = correlated(flow.BLOCK + 5, 8)
    params = flow.fit(x[:512])
    z = flow.transform(params, x)
    np.testing.assert_allclose(z, flow.forward(params, jnp.asarray(x))[0], atol=1e-4)
    np.testing.assert_allclose(flow.transform(params, x[-3:]), z[-3:], atol=1e-5)
    assert flow.transform(params, x[:0]).shape == (0, 8)


def test_channels_that_do_not_vary_do_no_harm():
    x = correlated(512, 8)
    x[:, 6:] = 7.0
    x[::2, 6] += 5e-7  # rounding
    params = [flow.fit(x, epochs=epochs) for epochs in (0, 5)]
    before, after = (float(flow.log_likelihood(each, jnp.asarray(x)).mean()) for each in params)
    assert before < after
    assert np.abs(flow.transform(flow.fit(x, epochs=5), x)).max() < 20


def test_embeddings_that_cannot_be_fit_are_refused():
    x = correlated(512, 8)
    x[:, 0] *= 1e30
    with pytest.raises(UserError, match="likelihood is not finite"):
        flow.fit(x)
