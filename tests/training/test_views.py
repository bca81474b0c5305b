import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simcse_jax.config.loss_fields import POLICIES
from simcse_jax.objectives.objective import Group
from simcse_jax.training.views import (
    LANGUAGE_MODEL,
    MASKING,
    POLICY_MASKS,
    Input,
    Pass,
    View,
    column_number,
    dropout_keys,
    embed,
    plan,
)

pytestmark = [pytest.mark.exact, pytest.mark.optimized]


def words(seed, step, index, numbers=(0, 1)):
    return np.asarray(jax.random.key_data(dropout_keys(seed, step, jnp.asarray(index), numbers)))


def test_every_example_step_view_and_seed_has_its_own_key():
    keys = np.concatenate([words(s, t, np.arange(8)).reshape(-1, 2) for s in range(3) for t in range(3)])
    assert len(np.unique(keys, axis=0)) == 3 * 3 * 8 * 2


def test_a_key_depends_on_the_place_in_the_global_batch_alone():
    whole = words(1, 2, np.arange(8))
    np.testing.assert_array_equal(words(1, 2, [6, 7]), whole[:, 6:])
    np.testing.assert_array_equal(words(1, 2, [3, 0]), whole[:, [3, 0]])
    np.testing.assert_array_equal(words(1, 2, np.arange(8), numbers=(1, 7, 0))[[2, 0]], whole)


def test_keys_are_threefry_with_any_default():
    with jax.default_prng_impl("rbg"):
        assert jax.random.key_impl(dropout_keys(0, 0, jnp.arange(2), [0, 1])) == "threefry2x32"


def test_unsupervised_pairs_are_one_sentence_under_two_masks():
    assert plan(1, "independent") == ((View(0, (0,)), View(0, (1,))), Group(0, 1, ()), Group(0, 1, ()))


def test_triplets_are_three_sentences_with_a_mask_each():
    views, pairs, _ = plan(3, "independent")
    assert views == (View(0, (0,)), View(1, (1,)), View(2, (2,))) and pairs == Group(0, 1, (2,))
    assert plan(4, "independent")[1].hard_negatives == (2, 3)


def test_off_dropout_adds_one_encoding_of_a_sentence_and_as_many_as_there_are_columns():
    views, pairs, others = plan(1, "independent", "off")
    assert views == (View(0, (0,)), View(0, (1,)), View(0, ()))
    assert (pairs, others) == (Group(0, 1, ()), Group(2, 2, ()))
    views, pairs, others = plan(3, "independent", "off")
    assert len(views) == 6 and others == Group(3, 4, (5,)) and all(not views[view].masks for view in (3, 4, 5))


def test_a_shared_mask_is_one_encoding():
    assert plan(1, "shared")[0] == (View(0, (0,)),)
    assert plan(2, "shared")[0] == (View(0, (0,)), View(1, (0,)))


def test_the_masks_of_mean_are_all_different_and_none_is_a_pair_s():
    views, _, _ = plan(1, "independent", "mean", samples=10)
    masks = [mask for view in views for mask in view.masks]
    assert len(masks) == len(set(masks)) == 22
    assert views == plan(1, "mean", "independent", samples=10)[0][2:] + plan(1, "mean", samples=10)[0]


def test_noise_stays_on_the_embeddings_of_a_pair_that_is_encoded_once():
    views, pairs, others = plan(1, "noisy", "independent")
    assert [view.masks for view in views] == [(0,), (1,), (0,), (1,)] and (pairs.anchor, others.anchor) == (0, 2)
    assert [view.noise for view in views] == [0, 1, None, None]


def test_two_towers():
    assert [view.tower for view in plan(1, "independent", two_towers=True)[0]] == [0, 1]
    assert [view.tower for view in plan(3, "independent", "off", two_towers=True)[0]] == [0, 1, 1, 0, 1, 1]


def test_the_policies_are_those_of_the_config():
    assert set(POLICY_MASKS) == set(POLICIES)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_of_the_config_has_a_plan(policy):
    assert plan(2, policy, policy)[1] == plan(2, policy)[1]


def test_changes_and_a_rate_are_of_the_positive_pairs_alone():
    inputs = Input("cutoff", "shuffled", positive_rate=True)
    anchor = View(0, (0,), change="cutoff")
    positive = View(0, (1,), change="shuffled", changed=1, rate="positive_dropout")
    assert plan(1, "independent", inputs=inputs)[0] == (anchor, positive)
    views, pairs, others = plan(3, "independent", "independent", inputs=inputs)
    assert views[:3] == (anchor, positive._replace(column=1), View(2, (2,)))
    assert views[3:] == (View(0, (0,)), View(1, (1,))) and others == Group(3, 4, (2,)) and pairs.hard_negatives == (2,)
    # Without masks a rate means nothing, and a sentence that is not changed either is encoded once.
    assert plan(1, "off", inputs=Input(positive_rate=True))[0] == (View(0, ()),)
    assert plan(1, "shared", inputs=Input(positive_change="shuffled"))[0][1] == View(0, (0,), None, 0, "shuffled", 1)


def test_embeddings_are_encoded_once_averaged_and_made_noisy():
    calls = []

    def encode(each, columns, masks, changes):
        calls.append((each, columns, masks, changes))
        sums = [100.0 * each.tower + 10 * c + (m if each.masked else 0.5) for c, m in zip(columns, masks, strict=True)]
        return jnp.array([[[number] * 3] * 2 for number in sums])

    views = [View(0, (1,)), View(1, (2, 4)), View(0, (1,), noise=7), View(0, ()), View(1, (1,), tower=1)]
    found = embed(views, encode, lambda number, shape: jnp.full(shape, 1000.0 * number))
    np.testing.assert_array_equal(found[:, 0, 0], [1.0, 13.0, 7001.0, 0.5, 111.0])
    assert found.shape == (5, 2, 3)
    assert calls == [
        (Pass(), [0, 1, 1], [1, 2, 4], [0, 0, 0]),
        (Pass(masked=False), [0], [0], [0]),
        (Pass(1), [1], [1], [0]),
    ]


def test_other_changes_and_rates_are_encoded_apart():
    calls = []

    def encode(each, columns, masks, changes):
        calls.append((each, columns, masks, changes))
        return jnp.arange(len(columns) * 6.0).reshape(-1, 2, 3) + 100 * len(calls)

    views = [View(0, ()), View(0, (), change="cutoff"), View(0, (), change="cutoff", changed=1)]
    views += [View(0, (1,), change="cutoff"), View(0, (1,), change="cutoff", rate="positive_dropout"), views[1]]
    found = embed(views, encode, None)
    np.testing.assert_array_equal(found[:, 0, 0], [100, 200, 206, 300, 400, 200])
    assert calls == [
        (Pass(masked=False), [0], [0], [0]),
        (Pass(masked=False, change="cutoff"), [0, 0], [0, 0], [0, 1]),
        (Pass(change="cutoff"), [0], [1], [0]),
        (Pass(change="cutoff", rate="positive_dropout"), [0], [1], [0]),
    ]


def test_the_mean_of_several_columns_is_one_positive_with_masks_of_its_own():
    views, group, _ = plan(4, "independent", positives=3)
    assert group == Group(0, 1, ()) and views[1].others == (2, 3)
    encoded = []

    def encode(each, columns, masks, changes):
        encoded.extend(zip(columns, masks, strict=True))
        return jnp.array(columns, jnp.float32)[:, None, None] * jnp.ones((1, 2, 3))

    found = embed(views, encode, None)
    assert found[:, 0, 0].tolist() == [0.0, 2.0]
    assert [column for column, _ in encoded] == [0, 1, 2, 3] and len({mask for _, mask in encoded}) == 4
    assert plan(2, "independent", positives=1)[0] == plan(2, "independent")[0]
    (anchor, positive), *_ = plan(3, "mean", positives=2, samples=5)
    assert len(anchor.draws) == 5 and len(set(positive.draws)) == 10


def test_all_numbers_of_draws_of_many_negatives_differ_and_those_of_the_first_are_as_ever():
    policies = {
        policy: [mask for m in range(40) for mask in POLICY_MASKS[policy](m, 9)] for policy in ("independent", "mean")
    }
    columns = [column_number(first, column) for first in (LANGUAGE_MODEL, MASKING) for column in range(40)]
    drawn = [*policies["independent"], *policies["mean"], *columns]
    assert len(set(drawn)) == len(drawn) and max(drawn) < 2**32
    assert policies["independent"][:4] == [0, 1, 2, 3] and policies["mean"][9:11] == [5, 9]
    assert columns[:4] == [LANGUAGE_MODEL + column for column in range(4)]
