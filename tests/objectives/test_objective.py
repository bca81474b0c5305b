import dataclasses
import re

import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import random
from support.equations import assert_is_equation
from support.steps import INFO_NCE, alone, term

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError
from simcse_jax.objectives.info_nce import info_nce
from simcse_jax.objectives.objective import Columns, Objective, Term, total
from simcse_jax.objectives.registry import OBJECTIVES
from simcse_jax.objectives.views import Plan

VIEWS = {"anchor": random(4, 3), "positive": random(4, 3, seed=1), "hard_negatives": random(2, 4, 3, seed=2)}


def embedded():
    """Two devices with four examples each; the other device has the same views in reverse."""
    return alone(VIEWS, gather=lambda x: jnp.concatenate([x, x[:, ::-1]], axis=1), psum=lambda x: 2 * x)


def test_views_are_found_by_name():
    anchors, positives = embedded().pair
    np.testing.assert_array_equal(anchors, VIEWS["anchor"])
    np.testing.assert_array_equal(positives, embedded()["positive"])
    stacked = embedded().stacked("positive", "hard_negatives", "none")
    np.testing.assert_array_equal(stacked, [VIEWS["positive"], *VIEWS["hard_negatives"]])
    assert embedded().truncated(2)["hard_negatives"].shape == (2, 4, 2)
    with pytest.raises(UserError, match=r"the view 'anchors'; it asked for anchor, positive, hard_negatives$"):
        embedded()["anchors"]


def test_one_view_and_several_come_from_all_devices_and_so_does_the_mean():
    positives, hard_negatives = embedded().everywhere("positive", "hard_negatives")
    np.testing.assert_array_equal(positives, [*VIEWS["positive"], *VIEWS["positive"][::-1]])
    last = VIEWS["hard_negatives"][1]
    np.testing.assert_array_equal(hard_negatives[1], [*last, *last[::-1]])
    assert hard_negatives.shape == (2, 8, 3)
    assert embedded().everywhere("positive", "none")[1] is None
    assert float(embedded().mean(jnp.array([1.0, 2.0, 3.0, 6.0]))) == 3.0  # 24 of 8


def test_sentences_that_the_data_lack_are_told_by_the_names_of_their_views():
    assert embedded().present_in("positive") is None and embedded().candidates("positive", "hard_negatives") is None
    there = {"anchor": np.ones(4, bool), "hard_negatives": random(2, 4) > 0}
    seen = dataclasses.replace(embedded(), present=there)
    assert seen.present_in("anchor", "hard_negatives").shape == (3, 4)
    found = dataclasses.replace(seen, present=there | {"positive": ~there["anchor"]})
    there = found.candidates("positive", "hard_negatives").present
    assert there.shape == (3, 8) and there[0].all() and not there.all()  # all rows have a positive
    assert found.candidates("anchor", pair=("positive", "anchor")) is None


class Labelled(Objective):
    name = "labelled"
    labels = hard_negatives = True


def test_data_without_what_it_declares_are_refused():
    lacks = ((2, 2, 2), "hard negatives"), ((3, 2, 3), "a hard negative in every row"), ((3, 3, 3), "labelled pairs")
    for columns, needs in lacks:
        with pytest.raises(UserError, match=rf"labelled.weight: needs {needs}, but (some rows of )?data.csv"):
            Labelled().check_columns(default_config(), Columns("data.csv", *columns))


class Scale(Objective):
    name = "scale"

    def loss(self, embedded, *, power, sign):
        return sign * embedded.params["scale"] ** power


def test_the_loss_is_the_weighted_sum_of_the_terms_of_their_parameters_numbers_and_options():
    first, second = random(2, 6, 4)
    pair = alone({"anchor": first, "positive": second}, params={"scale": jnp.float32(3.0)})
    contrast = term("info_nce", (("symmetric", False), ("similarity", "dot")))
    numbers = {"info_nce": {"weight": 2.0, "temperature": 0.5, "hard_negative_weight": 1.0}}
    numbers |= {"scale": {"weight": 0.5, "power": 2}}
    loss = jnp.mean(info_nce(first, second, None, jnp.arange(6), temperature=0.5, similarity="dot"))
    scale = Term(Scale(), (("sign", -1),))
    assert total([(scale, pair)], numbers) == -4.5
    np.testing.assert_allclose(total([(contrast, pair), (scale, pair)], numbers), 2.0 * loss - 4.5, rtol=1e-6)
    assert total([], {}) == 0


SIZES, WEIGHTS = (8, 5, 2), np.float32([1, 0.5, 2])


def test_at_several_sizes_value_and_gradient_are_the_weighted_sum_of_their_losses():
    """As `MatryoshkaLoss` of sentence-transformers has it around two losses of it."""
    scores = np.float32([0, 1, 0.5, 0.5, 0.3, 0.9])
    terms = [INFO_NCE, term("cosent")]
    numbers = {"info_nce": {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}}
    numbers |= {"cosent": {"weight": 0.5, "temperature": 0.05}}

    def ours(rows):
        seen = alone({"anchor": rows[0], "positive": rows[1]}, score=jnp.asarray(scores))
        return total([(each, seen) for each in terms], numbers, SIZES, jnp.asarray(WEIGHTS))

    def equation(rows):
        found = 0.0
        for size, weight in zip(SIZES, WEIGHTS, strict=True):
            one, other = (x[:, :size] / np.linalg.norm(x[:, :size], axis=1, keepdims=True) for x in rows)
            s = one @ other.T / 0.05
            contrast = np.mean(np.log(np.exp(s).sum(axis=1)) - np.diag(s))
            higher = scores[:, None] > scores
            found += weight * (contrast + 0.5 * np.log(1 + np.sum(np.exp(np.diag(s) - np.diag(s)[:, None])[higher])))
        return found

    assert_is_equation(ours, equation, random(2, 6, 8))


def test_losses_of_tokens_count_once_at_several_sizes():
    one, other = random(2, 6, 8)
    seen = alone({"anchor": one, "positive": other}, tokens=(jnp.full(6, 2.0), jnp.full(6, 1)))
    terms, numbers = [(term("mlm"), seen)], {"mlm": {"weight": 0.5}}
    assert total(terms, numbers, SIZES, jnp.asarray(WEIGHTS)) == total(terms, numbers) == 1


def scored(**fields):
    config = default_config()
    chosen = {"objective.info_nce.weight": 0.0, "objective.cosent.weight": 1.0}
    config.update_from_flattened_dict(chosen | {name.replace("__", "."): value for name, value in fields.items()})
    return config


COLUMNS = {f"data__columns__{name}": name for name in ("anchor", "positive", "negative")}


def test_what_does_not_go_together_is_refused():
    for fields, named in (
        ({"objective__info_nce__weight": 1.0}, "objective.info_nce.weight: next to cosent"),
        ({"objective__cosent__temperature": 0.0}, "objective.cosent.temperature=0.0"),
        ({"data__augment__name": "crop"}, "objective.cosent.weight: needs pairs with scores, so data.augment.name"),
        ({"data__positives": "entailment"}, "data.positives='entailment'"),
        (COLUMNS, "data.columns.negative='negative'"),
        ({"objective__contrastive_tension__weight": 1.0}, "objective.cosent.weight: next to contrastive_tension"),
        ({"data__score_range": ("5", "0")}, "data.score_range=('5', '0')"),
        ({"data__score_range": ("5",)}, "data.score_range="),
    ):
        with pytest.raises(UserError, match=re.escape(f"config.{named}")):
            validate(scored(**fields))


def test_it_goes_with_each_other_with_masked_words_and_where_it_is_said_with_in_batch_negatives():
    others = {"objective__angle__weight": 1.0, "objective__cosine_mse__weight": 0.5, "objective__mlm__weight": 0.1}
    validate(scored(**others, data__score_range=("0", "5")))
    validate(scored(objective__info_nce__weight=1.0, data__positives="all"))


def test_only_the_views_that_it_reads_are_encoded():
    plan = Plan(columns=3, positive="independent")
    assert set(Objective().views(plan)) == {"anchor", "positive", "hard_negatives"}
    for name in ("self_contrastive", "barlow_twins", "dimension_wise"):
        assert set(OBJECTIVES[name].views(plan)) == {"anchor", "positive"}
