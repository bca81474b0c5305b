import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import random_model
from support.checks import random

from simcse_jax.config.fields import default_config
from simcse_jax.objectives.info_nce import info_nce
from simcse_jax.objectives.objective import Embedded, Group, Needs, Objective, Parameters
from simcse_jax.objectives.registry import OBJECTIVES, Term, needs, total, trained
from simcse_jax.runs.state import CONVOLUTION_STREAM, HEAD_STREAM, PROJECTOR_STREAM, SECOND_HEAD_STREAM

FIRST, SECOND = random(2, 6, 4)


@pytest.fixture
def embedded():
    """A pair of views on a single device."""
    pair = Group(0, 1, ())
    return Embedded(
        views=jnp.stack([FIRST, SECOND]),
        positive=pair,
        negative=pair,
        own=jnp.arange(6),
        gather=lambda x: x,
        psum=lambda x: x,
        artificial=lambda count, size: jnp.zeros((count, size)),
        params={"scale": jnp.float32(3.0)},
    )


def test_the_names_are_those_of_the_config():
    assert set(OBJECTIVES) == set(default_config().objective)


def test_the_loss_is_the_weighted_sum_of_the_terms(embedded):
    options = {"info_nce": (("symmetric", False), ("similarity", "dot")), "dimension_wise": (("reading", "released"),)}
    numbers = {
        "info_nce": {"weight": 2.0, "temperature": 0.5, "hard_negative_weight": 1.0},
        "dimension_wise": {"weight": 0.3, "temperature": 5.0},
    }
    terms = [Term(name, options[name]) for name in numbers]
    alone = [total(embedded, [term], {term.name: numbers[term.name] | {"weight": 1.0}}) for term in terms]
    loss = jnp.mean(info_nce(FIRST, SECOND, None, jnp.arange(6), temperature=0.5, similarity="dot"))
    np.testing.assert_allclose(alone[0], loss, rtol=1e-6)
    np.testing.assert_allclose(total(embedded, terms, numbers), 2.0 * alone[0] + 0.3 * alone[1], rtol=1e-6)
    assert total(embedded, [], {}) == 0


def test_one_more_line_adds_an_objective(embedded, monkeypatch):
    def term(embedded, *, power, sign):
        return sign * embedded.params["scale"] ** power

    own = Parameters(lambda encoder, key: {"scale": jnp.ones(())}, stream=1)
    monkeypatch.setitem(OBJECTIVES, "scale", Objective(term, own, Needs(labels=True)))
    assert total(embedded, [Term("scale", (("sign", -1),))], {"scale": {"weight": 0.5, "power": 2}}) == -4.5
    fields = {"scale": {"weight": 0.5}, "info_nce": {"weight": 0.0}}
    assert list(trained(fields)) == ["scale"] and needs(fields) == Needs(labels=True)


def test_objectives_with_weight_zero_or_missing_in_an_older_run_are_off():
    assert trained({}) == {}
    assert list(trained({"info_nce": {"weight": 1.0}, "mlm": {"weight": 0.0}, "softmax_nli": {}})) == ["info_nce"]


def test_needs_are_those_of_all_trained_objectives():
    assert needs({}) == needs(default_config().objective) == Needs()
    assert needs({"mlm": {"weight": 0.1}, "off_dropout": {"weight": 1.0}}) == Needs(
        masked_tokens=True, negative_views=True
    )
    assert needs({"softmax_nli": {"weight": 1.0}, "off_dropout": {"weight": 0.0}}) == Needs(labels=True)


def test_no_two_parameters_share_a_stream_or_a_name():
    _, params, encoder = random_model()
    own = [objective.parameters for objective in OBJECTIVES.values() if objective.parameters]
    streams = [HEAD_STREAM, SECOND_HEAD_STREAM, CONVOLUTION_STREAM, PROJECTOR_STREAM, *(each.stream for each in own)]
    assert len(own) == 3 and len(set(streams)) == len(streams)
    names = [*params, *(name for each in own for name in each.fresh(encoder, jax.random.key(0)))]
    assert len(set(names)) == len(names)
