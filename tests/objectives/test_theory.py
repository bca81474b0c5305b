"""The papers' proofs about the objectives, as far as they can be computed, and what runs recorded of them.

docs/background/objectives.md sums up, docs/background/spectrum.md has the runs.
"""

import csv

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import ROOT, row_keys

from simcse_jax.evaluation.analysis import spectrum
from simcse_jax.huggingface.load import load
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models import parameters
from simcse_jax.models.pooling import pool
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.barlow_twins import cross_correlation
from simcse_jax.objectives.dimension_wise import standardize
from simcse_jax.objectives.info_nce import info_nce

BATCH = 64


def alone(x):
    """`psum` on a single device."""
    return x


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def real(minilm):
    """Mean-pooled layers 3 and 6 of the real MiniLM, for 64 sentences under two masks each: {layer: (2, 64, 384)}."""
    with open(ROOT / "examples" / "everyday" / "triplets.csv", newline="", encoding="utf-8") as file:
        sentences = list(dict.fromkeys(row["sent0"] for row in csv.DictReader(file)))[:BATCH]
    model = load(minilm)
    tokenizer = Tokenizer(model.folder, model.config)
    ids, mask = tokenizer.pad(tokenizer(sentences, 32), 32)
    graph, _ = build(model.config, with_head=False)

    @jax.jit
    def embed(params, keys):
        states = parameters.merge(graph, params).encoder(ids, mask, dropout_keys=keys, dropout_rate=0.1)
        return {layer: pool(states[: layer + 1], mask, "avg") for layer in (3, 6)}

    views = [embed(model.params, row_keys(BATCH, seed)) for seed in (0, 1)]
    return {layer: np.stack([view[layer] for view in views]) for layer in (3, 6)}


@jax.jit
def uniformity(h, temperature):
    """The left side of SimCSE's equation 7 over m unit vectors, from the objective: its ℓ_i have −1/τ and no 1/m.

    Where a sentence is its own positive, without dropout or under one mask, the first term is −1/τ whatever h is.
    """
    losses = info_nce(h, h, None, jnp.arange(len(h)), temperature=temperature)
    return jnp.mean(losses) + 1 / temperature - jnp.log(len(h))


def assert_equation_7(h, temperature):
    """(1/m) Σ_i log( (1/m) Σ_j exp(h_iᵀh_j / τ) ) ≥ 1/(τ m²) Σ_i Σ_j h_iᵀh_j; returns the difference."""
    left, right = spectrum.uniformity_with_self(h, temperature), spectrum.uniformity_bound(h, temperature)
    assert spectrum.alignment_term(h, h, temperature) == pytest.approx(-1 / temperature)
    assert float(uniformity(jnp.float32(h), temperature)) == pytest.approx(left, rel=1e-5, abs=1e-5)
    assert left >= max(right, spectrum.uniformity_floor(len(h), temperature)) - 1e-12
    return left - right


def test_both_terms_of_equation_6_add_up_to_the_objective():
    """Over a batch the positive is in its sum, too; without it, ℓ_i − log(m − 1) is what they add up to."""
    first, second = np.random.default_rng(0).normal(size=(2, 64, 16)).astype(np.float32)
    second += first
    for temperature in (0.05, 0.5):
        losses = info_nce(first, second, None, jnp.arange(64), temperature=temperature)
        positive = np.sum(unit(first) * unit(second), axis=1) / temperature
        expected = np.mean(positive + np.log(np.expm1(np.float64(losses)))) - np.mean(positive) - np.log(63)
        found = spectrum.alignment_term(first, second, temperature)
        found += spectrum.uniformity_term(first, temperature, second)
        assert found == pytest.approx(expected, abs=1e-4)


def test_equation_7_of_simcse_on_random_embeddings():
    h = np.random.default_rng(0).normal(size=(64, 16))
    for temperature in (0.05, 0.5, 5.0):
        for shift in (0.0, 1.0):  # shifted: a cone, as vanilla models have
            assert assert_equation_7(h + shift, temperature) > 0
        # It is Jensen's inequality: an equality if all similarities of a row are the same.
        assert assert_equation_7(np.ones((64, 16)), temperature) == pytest.approx(0, abs=1e-12)


def eigenvalue_and_sum(h):
    """λ_max(WWᵀ) and Sum(WWᵀ), W having the unit vectors in its rows, and the smallest element of WWᵀ."""
    product = unit(np.float64(h)) @ unit(np.float64(h)).T
    largest = spectrum.measure(h).numbers["top_eigenvalue"]
    assert largest == pytest.approx(np.linalg.eigvalsh(product)[-1])
    assert len(h) ** 2 * spectrum.uniformity_bound(h, 1.0) == pytest.approx(product.sum(), abs=1e-9)
    return largest, product.sum(), product.min()


def test_the_sum_of_similarities_bounds_the_top_eigenvalue_if_none_is_negative():
    """λ_max ≤ Sum then (Merikoski 1984); Sum / m ≤ λ_max always, by the vector of ones."""
    generator = np.random.default_rng(0)
    for m, d in ((2, 3), (64, 16), (16, 64)):
        largest, total, least = eigenvalue_and_sum(np.abs(generator.normal(size=(m, d))))
        assert least > 0 and total / m <= largest <= total
    # Otherwise it can be 0 for any spectrum; λ_max is at least m / min(m, D), since the eigenvalues add up to m.
    h = generator.normal(size=(32, 8))
    largest, total, _ = eigenvalue_and_sum(np.concatenate([h, -h]))
    assert total == pytest.approx(0, abs=1e-9) and largest >= 64 / 8


def test_minimizing_uniformity_flattens_the_spectrum():
    """Gradient descent on this term alone, from a cone: Sum and λ_max fall, while the trace stays m."""
    h = jnp.float32(np.random.default_rng(0).normal(size=(BATCH, 16)) + 2)
    gradient = jax.grad(lambda h: uniformity(h, 0.5))
    descend = jax.jit(lambda h: jax.lax.fori_loop(0, 200, lambda _, h: h - 20 * gradient(h), h))
    found, ranks = [eigenvalue_and_sum(np.asarray(h))], [spectrum.measure(np.asarray(h)).numbers["effective_rank"]]
    for _ in range(3):
        h = descend(h)
        found.append(eigenvalue_and_sum(np.asarray(h)))
        ranks.append(spectrum.measure(np.asarray(h)).numbers["effective_rank"])
    assert ranks == sorted(ranks) and ranks[0] < 12 < 15.9 < ranks[-1] <= 16
    eigenvalues, sums, least = zip(*found, strict=True)
    assert list(eigenvalues) == sorted(eigenvalues, reverse=True) and list(sums) == sorted(sums, reverse=True)
    assert eigenvalues[0] > BATCH / 2 and eigenvalues[-1] < 1.5 * BATCH / 16  # of 64 / 16 at best
    assert least[0] > 0 > least[-1] and sums[-1] < eigenvalues[-1]  # the sum is no bound by then


def test_the_page_of_the_spectrum_has_the_numbers_of_its_runs():
    folder = ROOT / "docs" / "background"
    with open(folder / "spectrum" / "runs.csv", newline="", encoding="utf-8") as file:
        rows = [{name: x if name == "run" else float(x) for name, x in row.items()} for row in csv.DictReader(file)]
    runs = {run: [row for row in rows if row["run"] == run] for run in dict.fromkeys(row["run"] for row in rows)}
    text = (folder / "spectrum.md").read_text(encoding="utf-8")
    digits = dict.fromkeys(("alignment_term", "uniformity_with_self", "uniformity_bound"), 2)
    digits |= dict.fromkeys(("top_eigenvalue", "effective_rank"), 1)
    shown = [("all", rows[0]), *((run.removeprefix("unsupervised "), of_run[-1]) for run, of_run in runs.items())]
    assert all({**of_run[0], "run": ""} == {**rows[0], "run": ""} for of_run in runs.values())
    expected = [
        f"| {run} | {row['step']:g} | " + " | ".join(f"{row[name]:.{n}f}" for name, n in digits.items()) + " |"
        for run, row in shown
    ]
    found = [line for line in text.splitlines() if line.startswith(tuple(f"| {run} |" for run, _ in shown))]
    assert [line.replace("−", "-") for line in found] == expected


def losses_at_bounds(s, temperature, n):
    """(ℓ_upper(τ), ℓ_lower(2τ)) of the isotropy paper's section 4.1, computed with the objective in float64.

    One anchor e₁, its positive at cosine s, and n − 1 negatives at cosine 0 (upper) or −1 (lower). This is possible for
    one anchor; not all n can have −1 for n > 2, since the mean cosine of n vectors is at least −1/(n − 1).
    """
    anchor, up, down = jnp.eye(1, n + 1), jnp.eye(n + 1)[1:n], -jnp.ones((n - 1, 1)) * jnp.eye(1, n + 1)
    positive = s * anchor + jnp.sqrt(1 - s * s) * jnp.eye(1, n + 1, n)
    return [
        info_nce(anchor, jnp.concatenate([positive, rows]), None, jnp.zeros(1, int), temperature=tau)[0]
        for rows, tau in ((up, temperature), (down, 2 * temperature))
    ]


@pytest.mark.parametrize("n", [4, 64])
def test_the_lower_bound_s_loss_at_twice_the_temperature_is_the_upper_bound_s(n):
    """Equation 17 of the isotropy paper, ℓ_lower(2τ) ≈ ℓ_upper(τ), with its error: docs/background/objectives.md.

    With a = (n − 1) e^{−s/τ} and ρ = e^{−(1 − s)/(2τ)}, ℓ_upper(τ) = log(1 + a) and ℓ_lower(2τ) = log(1 + a ρ).
    """
    with jax.enable_x64(True):
        losses = jax.jit(jax.vmap(losses_at_bounds, (0, 0, None)), static_argnums=2)
        points = [(s, temperature) for temperature in (0.025, 0.05, 0.1) for s in np.linspace(0.9, 1, 11)]
        found = np.stack(losses(*np.array(points).T, n), axis=1)
    for (s, temperature), (upper, lower) in zip(points, found, strict=True):
        a, rho = (n - 1) * np.exp(-s / temperature), np.exp(-(1 - s) / (2 * temperature))
        assert upper == pytest.approx(np.log1p(a), rel=1e-6, abs=1e-13)  # 1e-13: the rounding of logits of 40
        assert lower == pytest.approx(np.log1p(a * rho), rel=1e-6, abs=1e-13)
        error = np.log1p(a) - np.log1p(a * rho)
        assert 0 <= error <= min(a * (1 - rho), (1 - s) / (2 * temperature)) * (1 + 1e-12)
        assert error / np.log1p(a) == pytest.approx(1 - rho, abs=a + 1e-12)
        assert s < 1 or error == 0
        if (n, s) == (64, 0.9):
            assert upper < 8e-3 and round(1 - rho, 2) == {0.1: 0.39, 0.05: 0.63, 0.025: 0.86}[temperature]


def correlation(first, second, more=()):
    """SimCSE++'s equation 4, not centred."""
    more = jnp.reshape(jnp.float32(more), (-1, first.shape[1]))
    return np.asarray(cross_correlation(jnp.asarray(first), jnp.asarray(second), more, alone))


def standardized(first, second):
    """The products in equation 5's similarities: centred by dimension."""
    rows = jnp.float32(len(first))
    first, second = (standardize(jnp.asarray(x), rows, rows - 1, alone) for x in (first, second))
    return np.asarray(first.T @ second)


def test_the_correlation_of_two_views_has_at_most_the_rank_of_the_batch_and_artificial_rows_raise_it():
    """SimCSE++ section 4.2: rank C ≤ min(N, D). C = (Z¹S₁)ᵀ(Z²S₂) with diagonal S, whatever the denominators."""
    for rows, size in ((8, 32), (48, 16)):
        first, second = np.random.default_rng(0).normal(size=(2, rows, size)).astype(np.float32)
        assert np.linalg.matrix_rank(correlation(first, second)) == min(rows, size)
        assert np.linalg.matrix_rank(standardized(first, second)) == min(rows - 1, size)  # centring takes one away
    first, second, more = np.random.default_rng(0).normal(size=(3, 8, 32)).astype(np.float32)
    for count in (3, 8):
        assert np.linalg.matrix_rank(correlation(first, second, more[:count])) == 8 + count


@pytest.mark.slow
def test_of_a_real_model(real):
    """Equation 7; its layer 3 is a cone and its last one is not; the rank of a batch of 64, as SimCSE++ finds."""
    for first, second in real.values():
        assert assert_equation_7(first, 0.05) > 1
        assert 0 < assert_equation_7(first, 1.0) < 0.1  # the bound is tighter at a high temperature
        # Centred, as in equation 5, it is 63. The last nonzero value is 5e-3 of the largest, the rest float32's noise.
        for matrix, rank in ((correlation(first, second), 64), (standardized(first, second), 63)):
            values = np.linalg.svd(np.float64(matrix), compute_uv=False) / np.linalg.norm(matrix, 2)
            assert values[rank - 1] > 5e-3 and values[rank] < 1e-6
    cone, last = (eigenvalue_and_sum(real[layer][0]) for layer in (3, 6))
    assert cone[2] > 0 and cone[1] / BATCH <= cone[0] <= cone[1]
    assert last[2] < 0 and last[1] / BATCH <= last[0]
