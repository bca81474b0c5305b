from simcse_jax.config.loss_fields import LOSS_FIELDS, LOSS_SECTIONS, POLICIES
from simcse_jax.field import Field
from simcse_jax.objectives.registry import OBJECTIVES
from simcse_jax.objectives.views import Plan


def test_every_objective_has_its_weight_its_section_and_its_readings():
    objectives = {name.split(".")[1] for name in LOSS_FIELDS if name.startswith("objective.")}
    assert objectives == set(OBJECTIVES)
    for name in objectives:
        assert LOSS_FIELDS[f"objective.{name}.weight"].of_step and f"objective.{name}" in LOSS_SECTIONS
    readings = [field for name, field in LOSS_FIELDS.items() if name.endswith(".reading")]
    assert len(readings) == 4 and not any(field.of_step for field in readings)


def test_infonce_alone_is_on_by_default():
    weights = {name: field.default for name, field in LOSS_FIELDS.items() if name.endswith(".weight")}
    assert {name for name, weight in weights.items() if weight} == {"objective.info_nce.weight"}


def test_every_policy_is_one_of_the_views():
    assert all(Plan(1, policy).pair() for policy in POLICIES)
    assert isinstance(LOSS_FIELDS["views.positive"], Field)
