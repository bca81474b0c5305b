import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_batch, random_model, row_keys

from simcse_jax.choices import REPETITIONS
from simcse_jax.models import changes, parameters
from simcse_jax.models.changes import DRAWN, Change, Repeated, Retemplated, cutoff, shuffled, template_alone
from simcse_jax.models.config import Template

pytestmark = pytest.mark.exact
ROWS = 6


@functools.cache
def compiled(model_type, most_tokens=None):
    graph, params, _ = random_model(model_type, num_layers=2 if model_type == "modernbert" else 1)

    @jax.jit
    def run(ids, mask, change, keys=None):
        encoder = parameters.merge(graph, params).encoder
        return encoder(ids, mask, dropout_keys=keys, most_tokens=most_tokens, change=change)

    return run


def sentences(length=16, order=slice(None)):
    ids, mask = (array[order, 0] for array in random_batch(ROWS, 16))
    pad = [(0, 0), (0, length - 16)]
    return np.pad(ids, pad), np.pad(mask, pad)


def test_positions_of_real_tokens_are_permuted_and_exactly_the_share_of_columns_is_zero_even_if_draws_are_equal(
    monkeypatch,
):
    _, mask = sentences()
    (positions, kept) = shuffled(row_keys(ROWS), mask)
    assert kept is None and len(np.unique(mask.sum(axis=1))) > 2
    for row, count in zip(np.asarray(positions), mask.sum(axis=1), strict=True):
        assert sorted(row[:count]) == list(range(count)) and list(row[count:]) == list(range(count, 16))
    assert (np.asarray(positions) != np.arange(16)).any(axis=1).sum() >= ROWS - 1
    # Every place is as likely to come first: 600 draws of 5 tokens, [CLS] and [SEP] too.
    first = np.asarray(shuffled(row_keys(600, seed=1), np.ones((600, 5), np.int32)).positions)
    for place in range(5):
        counts = np.bincount(first[:, place], minlength=5)
        assert np.abs(counts - 120).max() < 45, (place, counts)
    for share, count in ((0.2, 6), (0.5, 16), (0.0, 0), (0.99, 31)):
        kept = np.asarray(cutoff(row_keys(ROWS), 32, share).kept)
        assert kept.shape == (ROWS, 32) and ((~kept).sum(axis=1) == count).all()
        assert count != 16 or len(np.unique(kept, axis=0)) == ROWS
    monkeypatch.setattr(changes, "draws", lambda keys, site, count: jnp.zeros((len(keys), count), jnp.uint32))
    assert ((~np.asarray(cutoff(row_keys(2), 768, 0.2).kept)).sum(axis=1) == 153).all()


@pytest.mark.parametrize("name", DRAWN)
def test_a_change_depends_on_its_row_alone_and_not_on_padding(name):
    def drawn(length=16, order=slice(None), seed=0):
        found = DRAWN[name](row_keys(ROWS, seed)[order], sentences(length, order)[1], 32, 0.2)
        return np.asarray(next(part for part in found if part is not None))

    whole, width = drawn(), 16 if name == "shuffled" else 32
    np.testing.assert_array_equal(drawn(24)[:, :width], whole)
    np.testing.assert_array_equal(np.concatenate([drawn(order=slice(i, i + 2)) for i in range(0, ROWS, 2)]), whole)
    assert (drawn(seed=1) != whole).any(axis=1).all()


@pytest.mark.parametrize("model_type", ["bert", "mpnet", "modernbert"])
def test_shuffled_positions_are_the_plain_encoder_of_the_tokens_in_that_order(model_type):
    """And the identity is the plain encoder, up to the order of the embedding layer's sum."""
    (ids, mask), keys, run = sentences(), row_keys(ROWS), compiled(model_type)
    plain = run(ids, mask, Change())
    same = run(ids, mask, Change(positions=jnp.tile(jnp.arange(16), (ROWS, 1))))
    np.testing.assert_allclose(same[0], plain[0], atol=1e-6)
    np.testing.assert_allclose(same[-1], plain[-1], atol=2e-6)
    change = shuffled(keys, mask)
    back = np.argsort(np.asarray(change.positions), axis=1)  # which token stands in each place
    reordered = run(np.take_along_axis(ids, back, axis=1), mask, Change())
    found = run(ids, mask, change)
    for ours, theirs in zip(found, reordered, strict=True):
        placed = np.take_along_axis(np.asarray(ours), back[..., None], axis=1)
        np.testing.assert_allclose(placed * mask[..., None], theirs * mask[..., None], atol=1e-5)
    assert np.abs(found[-1] - plain[-1]).max() > 0.05


def test_cut_off_columns_are_zero_in_all_tokens_after_the_dropout_and_the_others_are_unchanged():
    (ids, mask), keys, run = sentences(), row_keys(ROWS), compiled("bert")
    change = cutoff(keys, 32, 0.2)
    found, plain = (np.asarray(run(ids, mask, each, keys)[0]) for each in (change, Change()))
    zero = ~np.asarray(change.kept)[:, None] & np.ones((1, 16, 1), bool)
    assert not found[zero].any() and plain[zero].any()
    np.testing.assert_array_equal(found[~zero], plain[~zero])


@pytest.mark.parametrize(
    ("name", "model_type"), [("shuffled", "mpnet"), pytest.param("cutoff", "bert", marks=pytest.mark.slow)]
)
def test_leaving_padding_out_changes_nothing(name, model_type):
    (ids, mask), keys = sentences(), row_keys(ROWS)
    change = DRAWN[name](keys, mask, 32, 0.2)
    assert mask.sum() <= 70 < mask.size
    found, expected = (compiled(model_type, most)(ids, mask, change, keys) for most in (70, None))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours * mask[..., None], theirs * mask[..., None], atol=2e-6)


def counts_of(ids, mask):
    """How often each token of a sentence 1, 2, … stands in it, in its order."""
    words = ids[mask > 0]
    assert (np.diff(words) >= 0).all() and not mask[len(words) :].any()
    return np.bincount(words)[1:]


# How many numbers of repeated tokens ESimCSE's code can draw, and those of the paper.
POSSIBLE = {
    "released": lambda length, rate: min(10, int(rate * length)) or 1,
    "paper": lambda length, rate: min(length - 2, max(2, int(rate * (length - 2)))) + 1,
}
MORE = [pytest.param(*each, marks=pytest.mark.slow) for each in ((3, 0.3), (32, 0.28))]


@pytest.mark.parametrize(("length", "rate"), [(2, 0.32), (8, 0.32), (32, 0.9), *MORE])
@pytest.mark.parametrize("reading", REPETITIONS)
def test_some_tokens_stand_there_twice_each_number_of_them_as_likely_and_each_token_too(reading, length, rate):
    rows, change = 1500, Repeated(rate, reading)
    plain = np.tile(np.arange(1, length + 1, dtype=np.int32), (rows, 1))
    ids, mask = jax.jit(change)(row_keys(rows, seed=2), plain, np.ones_like(plain))
    assert ids.shape == (rows, length + change.most(length)) == mask.shape
    counts = np.array([counts_of(*row) for row in zip(np.asarray(ids), np.asarray(mask), strict=True)])
    assert counts.shape == (rows, length) and set(counts.ravel()) <= {1, 2}
    assert (counts[:, [0, -1]] == 1).all()  # [CLS] and [SEP]
    numbers = np.asarray(mask).sum(axis=1) - length
    expected = range(POSSIBLE[reading](length, rate))
    assert set(numbers) == set(expected) and numbers.max() <= change.most(length)
    assert np.abs(np.bincount(numbers) - rows / len(expected)).max() < 5 * np.sqrt(rows / len(expected))
    twice = counts[:, 1:-1].sum(axis=0) - rows
    assert length == 2 or np.abs(twice - twice.mean()).max() <= 5 * np.sqrt(max(twice.mean(), 1))


def test_what_is_repeated_depends_on_the_row_alone_and_not_on_padding():
    change, (ids, mask) = jax.jit(Repeated(0.4, "paper")), sentences()
    whole, there = (np.asarray(part) for part in change(row_keys(ROWS), ids, mask))
    wider, still = (np.asarray(part)[:, : whole.shape[1]] for part in change(row_keys(ROWS), *sentences(24)))
    np.testing.assert_array_equal(still, there)
    np.testing.assert_array_equal(wider * there, whole * there)
    two = [np.asarray(change(row_keys(ROWS)[i : i + 2], ids[i : i + 2], mask[i : i + 2])[1]) for i in (0, 2, 4)]
    np.testing.assert_array_equal(np.concatenate(two), there)
    assert (there != np.asarray(change(row_keys(ROWS, 1), ids, mask)[1])).any()


TEMPLATES = [Template((1, 5), (6, 7, 2)), Template((1,), (8, 2)), Template((1, 5, 9, 9), (2,)), Template((1, 5), ())]


@pytest.mark.parametrize(("own", "other"), [*((TEMPLATES[0], each) for each in TEMPLATES), TEMPLATES[1::-1]])
def test_another_template_takes_the_place_of_the_first_one(own, other):
    words = [[], [30], [31, 32, 33], list(range(20, 27))]

    def rows(template, places):
        found = [[*template.before, *each, *template.after] for each in words]
        mask = np.array([[1] * len(row) + [0] * (places - len(row)) for row in found])
        return np.array([row + [0] * (places - len(row)) for row in found]), mask

    ids, mask = rows(own, own.size + 9)
    change = Retemplated(own, other)
    found, there = (np.asarray(part) for part in jax.jit(change)(row_keys(4), ids, mask))
    expected, real = rows(other, own.size + 9 + max(change.growth, 0))
    np.testing.assert_array_equal(there, real)
    np.testing.assert_array_equal(found * there, expected)


def test_a_template_alone_has_the_positions_that_it_has_around_a_sentence():
    ids, mask, change = template_alone(TEMPLATES[0], jnp.array([5, 9]))
    assert ids.tolist() == [[1, 5, 6, 7, 2]] * 2 and mask.tolist() == [[1] * 5] * 2 and change.kept is None
    assert change.positions.tolist() == [[0, 1, 2, 3, 4], [0, 1, 6, 7, 8]]
    assert template_alone(TEMPLATES[0], jnp.array([6]), -2)[2].positions.tolist() == [[-2, -1, 1, 2, 3]]
