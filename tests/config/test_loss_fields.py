import pytest
from support.configs import config_of

from simcse_jax.config import loss_fields
from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.fields import default_config
from simcse_jax.config.loss_fields import (
    LOSS_FIELDS,
    LOSS_SECTIONS,
    POLICIES,
    has_data_scores,
    matryoshka_sizes,
    matryoshka_weights,
)
from simcse_jax.errors import UserError
from simcse_jax.objectives.registry import OBJECTIVES
from simcse_jax.objectives.views import Plan


def sized(dimensions=(), weights=(), **fields):
    return config_of(matryoshka__dimensions=dimensions, matryoshka__weights=weights, **fields)


def test_every_objective_has_its_weight_its_section_and_its_readings_and_infonce_alone_is_on():
    weights = {name: field.default for name, field in LOSS_FIELDS.items() if name.endswith(".weight")}
    assert weights.keys() == {f"objective.{name}.weight" for name in OBJECTIVES}
    assert {name for name, weight in weights.items() if weight} == {"objective.info_nce.weight"}
    for name in OBJECTIVES:
        assert LOSS_FIELDS[f"objective.{name}.weight"].of_step and f"objective.{name}" in LOSS_SECTIONS
    readings = [field for name, field in LOSS_FIELDS.items() if name.endswith(".reading")]
    assert len(readings) == 8 and not any(field.of_step for field in readings)


def test_sizes_fall_and_keep_their_weights_and_fit_what_sees_the_embedding():
    assert all(Plan(1, policy).pair() for policy in POLICIES)
    assert matryoshka_sizes(sized()) == () and matryoshka_weights(sized()) == []
    found = sized(("64", "768", "256"), ("0.5", "2", "1"), model__mlp="none")
    validate(found)
    assert matryoshka_sizes(found) == (768, 256, 64) and matryoshka_weights(found) == [2.0, 1.0, 0.5]
    assert matryoshka_weights(sized(("64", "32"))) == [1.0, 1.0]
    for parts in (("0",), ("8", "8"), ("a",), ("1.5",)):
        with pytest.raises(ValueError):
            loss_fields.read_dimensions(parts)
    # Those that do not fit are refused.
    projected = {"model__mlp": "none", "projector__widths": "2D,D", "projector__objectives": ("info_nce",)}
    classified = {"objective__info_nce__weight": 0.0, "objective__softmax_nli__weight": 1.0}
    for dimensions, fields in (((64, 32), {"model__mlp": "none"}), (("64",), projected), (("64",), classified)):
        with pytest.raises(UserError, match=r"^config\.matryoshka\.dimensions[=:]"):
            validate(sized(dimensions, **fields))
    with pytest.raises(UserError, match=r"^config\.matryoshka\.dimensions[=:]"):
        validate(sized(("64",)))  # the head sees all of an embedding


@pytest.mark.parametrize("name", ["embedding_mse", "margin_mse", "distill_kl", "gist", "ranking_distillation"])
def test_each_needs_a_teacher_or_scores_in_the_data(name):
    weight = {f"objective__{name}__weight": 1.0}
    needs_teacher = r"^config\.teacher\.model='': .*objective\."
    if name in ("margin_mse", "distill_kl"):
        config = config_of(**weight, data__columns__score="kd", teacher__kept="f", data__score_range=("0", "5"))
        validate(config)
        assert has_data_scores(config) and not has_data_scores(config_of(**weight, teacher__model="m"))
        assert ineffective(config) == ["teacher.kept=f"]
        with pytest.raises(UserError, match=f"{needs_teacher}gist"):
            validate(config_of(**weight, objective__gist__weight=1.0))
    else:
        with pytest.raises(UserError, match=f"{needs_teacher}{name}"):
            validate(config_of(**weight))
    with pytest.raises(UserError, match=rf"^config\.data\.mixed=True: objective\.{name}"):
        validate(config_of(**weight, teacher__model="m", data__mixed=True, model__mlp="none"))
    validate(config_of(**weight, teacher__model="m", model__mlp="none"))


def test_objectives_of_elements_refuse_what_embeddings_have_in_training_alone():
    for fields in ({"objective.embedding_mse.weight": 1.0, "teacher.model": "m"}, {"matryoshka.dimensions": ("64",)}):
        config = default_config()
        config.update_from_flattened_dict(fields)
        for mlp, pooler, named in (("train", "", "model.mlp=train"), ("none", "avg", "eval.pooler=avg")):
            config.model.mlp, config.eval.pooler = mlp, pooler
            with pytest.raises(UserError, match=f"config.{next(iter(fields))}=.*: .*{named}"):
                validate(config)
        for mlp, pooler in (("none", ""), ("always", ""), ("none", "cls")):
            config.model.mlp, config.eval.pooler = mlp, pooler
            validate(config)
