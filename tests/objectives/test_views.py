from simcse_jax.config.loss_fields import POLICIES
from simcse_jax.models.config import Template
from simcse_jax.objectives.off_dropout import OffDropout
from simcse_jax.objectives.views import LANGUAGE_MODEL, MASKING, POLICY_MASKS, Plan, View, column_number, flatten_views

OFF_DROPOUT = OffDropout()


def pair(*plan, **changes):
    return Plan(*plan, **changes).pair()


def distinct(plan):
    """The views that a step with off_dropout encodes."""
    return list(dict.fromkeys(flatten_views(OFF_DROPOUT.views(plan))))


def test_pairs_are_one_sentence_under_two_masks_or_two_sentences_and_triplets_three_with_a_mask_each():
    assert pair(1, "independent") == {"anchor": View(0, (0,)), "positive": View(0, (1,)), "hard_negatives": ()}
    views = pair(3, "independent")
    assert views == {"anchor": View(0, (0,)), "positive": View(1, (1,)), "hard_negatives": (View(2, (2,)),)}
    assert [view.column for view in pair(4, "independent")["hard_negatives"]] == [2, 3]
    assert set(flatten_views(pair(1, "shared"))) == {View(0, (0,))}  # one encoding
    assert flatten_views(pair(2, "shared")) == [View(0, (0,)), View(1, (0,))]
    assert [view.tower for view in flatten_views(pair(1, "independent", two_towers=True))] == [0, 1]
    assert [view.tower for view in distinct(Plan(3, "independent", "off", two_towers=True))] == [0, 1, 1, 0, 1, 1]


def test_off_dropout_adds_one_encoding_of_a_sentence_and_as_many_as_there_are_columns():
    views = OFF_DROPOUT.views(Plan(1, "independent", "off"))
    assert distinct(Plan(1, "independent", "off")) == [View(0, (0,)), View(0, (1,)), View(0, ())]
    assert views["clean_anchor"] == views["clean_positive"] == View(0, ())
    views = distinct(Plan(3, "independent", "off"))
    assert len(views) == 6 and all(not view.masks for view in views[3:])
    assert [view.column for view in views[3:]] == [0, 1, 2]


def test_the_masks_of_mean_are_all_different_and_none_is_a_pair_s():
    views = distinct(Plan(1, "independent", "mean", samples=10))
    masks = [mask for view in views for mask in view.masks]
    assert len(masks) == len(set(masks)) == 22
    assert set(views) == set(distinct(Plan(1, "mean", "independent", samples=10)))


def test_noise_stays_on_the_embeddings_of_a_pair_that_is_encoded_once():
    views = distinct(Plan(1, "noisy", "independent"))
    assert [view.masks for view in views] == [(0,), (1,), (0,), (1,)]
    assert [view.noise for view in views] == [0, 1, None, None]


def test_the_same_policy_for_both_kinds_of_pairs_adds_nothing():
    assert set(POLICY_MASKS) == set(POLICIES)
    assert all(Plan(2, policy, policy).separate() == pair(2, policy) for policy in POLICIES)


def test_changes_and_a_rate_are_of_the_positive_pairs_alone():
    changed = {"anchor_change": "cutoff", "positive_change": "shuffled", "positive_rate": True}
    anchor = View(0, (0,), change="cutoff")
    positive = View(0, (1,), change="shuffled", changed=1, rate="positive_dropout")
    assert flatten_views(pair(1, "independent", **changed)) == [anchor, positive]
    views = distinct(Plan(3, "independent", "independent", **changed))
    assert views == [anchor, positive._replace(column=1), View(2, (2,)), View(0, (0,)), View(1, (1,))]
    # Without masks a rate means nothing, and a sentence that is not changed either is encoded once.
    assert set(flatten_views(pair(1, "off", positive_rate=True))) == {View(0, ())}
    assert pair(1, "shared", positive_change="shuffled")["positive"] == View(0, (0,), None, 0, "shuffled", 1)


def test_all_numbers_of_draws_of_many_negatives_differ_and_those_of_the_first_are_as_ever():
    policies = {
        policy: [mask for m in range(40) for mask in POLICY_MASKS[policy](m, 9)] for policy in ("independent", "mean")
    }
    columns = [column_number(first, column) for first in (LANGUAGE_MODEL, MASKING) for column in range(40)]
    drawn = [*policies["independent"], *policies["mean"], *columns]
    assert len(set(drawn)) == len(drawn) and max(drawn) < 2**32
    assert policies["independent"][:4] == [0, 1, 2, 3] and policies["mean"][9:11] == [5, 9]
    assert columns[:4] == [LANGUAGE_MODEL + column for column in range(4)]


def test_what_a_template_alone_gives_is_taken_from_each_view_by_its_own_template():
    first, second = Template((1,), (2,)), Template((1, 3), (2,))
    templates = {"template": first, "positive_template": second, "positive_change": "another"}
    assert {view.removed for view in flatten_views(pair(3, "independent", **templates))} == {None}
    plan = Plan(3, "independent", "off", denoising="paper", **templates)
    assert [view.removed for view in flatten_views(plan.pair())] == [first, second, second]
    assert [view.change for view in flatten_views(plan.pair())] == ["none", "another", "another"]
    assert [view.removed for view in flatten_views(plan.separate())] == [first] * 3
    anchor, positive, _ = flatten_views(plan.pair())
    assert anchor.encoder_pass.removed == first and anchor.encoder_pass != positive.encoder_pass
