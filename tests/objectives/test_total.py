import jax.numpy as jnp
import numpy as np
import pytest
from support.checks import random
from support.steps import alone, term

from simcse_jax.objectives.info_nce import info_nce
from simcse_jax.objectives.objective import Objective
from simcse_jax.objectives.total import Term, total

FIRST, SECOND = random(2, 6, 4)


@pytest.fixture
def embedded():
    """A pair of views on a single device."""
    return alone({"anchor": FIRST, "positive": SECOND}, params={"scale": jnp.float32(3.0)})


def test_the_loss_is_the_weighted_sum_of_the_terms(embedded):
    options = {"info_nce": (("symmetric", False), ("similarity", "dot")), "dimension_wise": (("reading", "released"),)}
    numbers = {
        "info_nce": {"weight": 2.0, "temperature": 0.5, "hard_negative_weight": 1.0},
        "dimension_wise": {"weight": 0.3, "temperature": 5.0},
    }
    terms = [(term(name, options[name]), embedded) for name in numbers]
    alone = [total([each], {each[0].name: numbers[each[0].name] | {"weight": 1.0}}) for each in terms]
    loss = jnp.mean(info_nce(FIRST, SECOND, None, jnp.arange(6), temperature=0.5, similarity="dot"))
    np.testing.assert_allclose(alone[0], loss, rtol=1e-6)
    np.testing.assert_allclose(total(terms, numbers), 2.0 * alone[0] + 0.3 * alone[1], rtol=1e-6)
    assert total([], {}) == 0


class Scale(Objective):
    name = "scale"

    def loss(self, embedded, *, power, sign):
        return sign * embedded.params["scale"] ** power


def test_an_objective_reads_its_parameters_its_numbers_and_its_options(embedded):
    terms = [(Term(Scale(), (("sign", -1),)), embedded)]
    assert total(terms, {"scale": {"weight": 0.5, "power": 2}}) == -4.5
