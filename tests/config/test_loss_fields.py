from simcse_jax.config.loss_fields import LOSS_FIELDS, LOSS_SECTIONS, POLICIES
from simcse_jax.field import Field
from simcse_jax.objectives import choices


def test_every_objective_has_its_weight_its_section_and_its_readings():
    from simcse_jax.objectives.registry import OBJECTIVES

    objectives = {name.split(".")[1] for name in LOSS_FIELDS if name.startswith("objective.")}
    assert objectives == set(OBJECTIVES) >= {*choices.UNPAIRED, *choices.UNPROJECTED}
    for name in objectives:
        assert LOSS_FIELDS[f"objective.{name}.weight"].of_step and f"objective.{name}" in LOSS_SECTIONS
    for name, readings in choices.READINGS.items():
        field = LOSS_FIELDS[f"objective.{name}.reading"]
        assert not field.of_step and all(reading in field.meaning for reading in readings)


def test_infonce_alone_is_on_by_default():
    weights = {name: field.default for name, field in LOSS_FIELDS.items() if name.endswith(".weight")}
    assert {name for name, weight in weights.items() if weight} == {"objective.info_nce.weight"}


def test_every_policy_is_one_of_the_views():
    from simcse_jax.training.views import plan

    assert all(plan(1, policy) for policy in POLICIES)
    assert isinstance(LOSS_FIELDS["views.positive"], Field)
