import numpy as np
import pytest
from support import random_model
from support.gradients import assert_same, compiled, computed
from support.steps import INFO_NCE, batch, recipe, settings, term

from simcse_jax.choices import HEADS, MASKED
from simcse_jax.models.masking import Masking
from simcse_jax.models.projector import Projector
from simcse_jax.objectives.views import Plan
from simcse_jax.runs.state import ModelSpec, split_shapes
from simcse_jax.training.loss import group_by_statistics

pytestmark = pytest.mark.exact


def test_pairs_share_statistics_and_negatives_that_are_encoded_separately_have_theirs():
    plan = Plan(3, "independent", "off")
    (anchor, positive, (hard,)), (other, *_) = (list(named.values()) for named in (plan.pair(), plan.separate()))
    views = (anchor, other, positive, hard)
    assert group_by_statistics(Projector(("D",)), views, plan) == [[0, 2, 3], [1]]
    assert group_by_statistics(Projector(("D",)), (anchor, positive), plan) == [[0, 1]]
    assert group_by_statistics(Projector(("D",), statistics="each"), views, plan) == [[0], [1], [2], [3]]


SLOW = [  # what a case changes, and whether the shift counts for nothing
    ({"projector": Projector(("D", "D"), last_norm="none")}, True),
    ({"two_towers": True}, False),  # their difference counts
    ({"changed": (("anchor_change", MASKED),)}, False),  # in one pass with the losses of masked tokens
    ({"model_type": "albert"}, False),  # the first layer adds the same bias as the second, which it precedes
]
CASES = [({}, True), ({"projector": Projector(("D",), last_norm="none")}, False)]  # without batch norm
CASES += [pytest.param(*case, marks=pytest.mark.slow) for case in SLOW]


@pytest.mark.parametrize(("changes", "is_free"), CASES)
def test_the_gradient_of_a_shift_is_left_out_where_it_is_zero_and_nowhere_else(changes, is_free, monkeypatch):
    changes = dict(changes)
    model_type = changes.pop("model_type", "bert")
    graph, params, config = random_model(model_type, num_layers=1 + (model_type == "albert"), with_head=False)
    projector = changes.pop("projector", Projector(("D",)))
    terms, numbers = [INFO_NCE._replace(projected=True)], {"info_nce": {"weight": 1.0}}
    numbers["info_nce"] |= {"temperature": 0.05, "hard_negative_weight": 1.0}
    if "changed" in changes:
        terms.append(term("mlm"))
        numbers["mlm"] = {"weight": 1.0}
        changes = changes | {"masking": Masking(3, (0, 1, 2, 3))}
    generator = np.random.default_rng(0)
    spec = ModelSpec(head=HEADS["none"], dual_encoder="two_towers" in changes, projector=projector, objectives=numbers)
    shapes = split_shapes(config, spec)[0]
    params = {name: generator.normal(0, 0.2, shape.shape).astype(np.float32) for name, shape in shapes.items()} | params
    chosen = recipe(1, objectives=tuple(terms), projector=projector, **changes)._replace(use_head=False)

    def found():
        return computed(compiled(graph, chosen), params, batch(1), settings(objective=numbers))

    (loss, usual), name = found(), "encoder.layers.0.output_norm.bias"
    monkeypatch.setattr("simcse_jax.training.loss.drop_shift_gradient", lambda graph, params: params)
    whole_loss, whole = found()
    size, usual_size = (np.abs(gradient.pop(name)).max() for gradient in (whole, usual))
    assert size < 1e-5 and usual_size == 0 if is_free else size == usual_size > 1e-3
    assert_same((loss, usual), (whole_loss, whole))
