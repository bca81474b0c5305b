import dataclasses

import numpy as np
import pytest
from support.checks import random

from simcse_jax.errors import UserError
from simcse_jax.runs.loading import load_model
from simcse_jax.runs.merging import merge


@pytest.fixture(scope="module")
def models(tiny_bert):
    """Three of one base model: others by noise."""
    base = load_model(str(tiny_bert))

    def moved(seed):
        noisy = {name: value + 0.1 * random(*np.shape(value), seed=seed) for name, value in base.params.items()}
        return dataclasses.replace(base, name=f"model {seed}", params=noisy, language_model=None)

    return [dataclasses.replace(base, language_model=None), moved(1), moved(2)]


def test_the_mean_is_weighted_and_of_all_tensors(models):
    merged = merge(models, [2, 1, 1])
    for name, value in merged.params.items():
        parts = [np.float64(model.params[name]) for model in models]
        np.testing.assert_allclose(value, 0.5 * parts[0] + 0.25 * parts[1] + 0.25 * parts[2], atol=1e-7)
        assert value.dtype == np.float32
    same = merge([models[0]] * 3)
    assert all(np.array_equal(value, models[0].params[name]) for name, value in same.params.items())


def test_slerp_turns_from_one_to_the_other_at_constant_speed_and_length(models):
    one, other = models[:2]
    name = next(key for key, value in one.params.items() if np.ndim(value) == 2)
    a, b = (np.float64(model.params[name]).ravel() for model in (one, other))
    b *= np.linalg.norm(a) / np.linalg.norm(b)
    scaled = {**other.params, name: np.float32(b.reshape(np.shape(one.params[name])))}
    other = dataclasses.replace(other, params=scaled)
    whole = np.arccos(a @ b / (a @ a))
    for share in (0, 0.25, 1):
        merged = np.float64(merge([one, other], [1 - share, share], "slerp").params[name]).ravel()
        assert np.linalg.norm(merged) == pytest.approx(np.linalg.norm(a), rel=1e-5)
        assert np.arccos(np.clip(a @ merged / (a @ a), -1, 1)) == pytest.approx(share * whole, abs=1e-3)
    equal = merge([one, one], method="slerp")
    assert all(np.array_equal(value, one.params[key]) for key, value in equal.params.items())


def test_what_cannot_be_averaged_is_named(models, masked_bert):
    one, other, third = models
    config = dataclasses.replace(other.config, vocab_size=one.config.vocab_size + 1)
    settings = one.settings._replace(truncate_dim=8)
    for given, weights, method, message in (
        ([], (), "mean", "models: 0; give at least two"),
        (models, (), "slerp", "method slerp: is between two models, and 3 are given"),
        ([one, other], (1,), "mean", "weights: 1 for 2 models"),
        ([one, other], (1, -1), "mean", "weights: must be at least 0, and one above 0"),
        ([one, other], (0, 0), "mean", "weights: must be at least 0, and one above 0"),
        ([one, other], (1, float("nan")), "mean", "weights: must be at least 0"),
        ([one, dataclasses.replace(other, config=config)], (), "mean", "model 1: has another architecture than"),
        ([one, dataclasses.replace(other, pooler="avg")], (), "mean", "model 1: has another pooler"),
        ([one, dataclasses.replace(other, settings=settings)], (), "mean", "model 1: has another pooler"),
        ([one, dataclasses.replace(third, params={})], (), "mean", "model 2: has another tensor"),
        ([one, load_model(str(masked_bert))], (), "mean", "masked-bert.* has another"),
    ):
        with pytest.raises(UserError, match=message):
            merge(given, weights, method)
