import pytest

from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.fields import default_config
from simcse_jax.config.loss_fields import (
    LOSS_FIELDS,
    LOSS_SECTIONS,
    POLICIES,
    read_dimensions,
    scored_by_data,
    sizes_of,
    weights_of,
)
from simcse_jax.errors import UserError
from simcse_jax.field import Field
from simcse_jax.objectives.registry import OBJECTIVES
from simcse_jax.objectives.views import Plan


def test_every_objective_has_its_weight_its_section_and_its_readings():
    objectives = {name.split(".")[1] for name in LOSS_FIELDS if name.startswith("objective.")}
    assert objectives == set(OBJECTIVES)
    for name in objectives:
        assert LOSS_FIELDS[f"objective.{name}.weight"].of_step and f"objective.{name}" in LOSS_SECTIONS
    readings = [field for name, field in LOSS_FIELDS.items() if name.endswith(".reading")]
    assert len(readings) == 8 and not any(field.of_step for field in readings)


def test_infonce_alone_is_on_by_default():
    weights = {name: field.default for name, field in LOSS_FIELDS.items() if name.endswith(".weight")}
    assert {name for name, weight in weights.items() if weight} == {"objective.info_nce.weight"}


def test_every_policy_is_one_of_the_views():
    assert all(Plan(1, policy).pair() for policy in POLICIES)
    assert isinstance(LOSS_FIELDS["views.positive"], Field)


def sized(dimensions=(), weights=(), **fields):
    config = default_config()
    config.matryoshka.dimensions, config.matryoshka.weights = dimensions, weights
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return config


def test_sizes_fall_and_keep_their_weights():
    assert sizes_of(sized()) == () and weights_of(sized()) == []
    found = sized(("64", "768", "256"), ("0.5", "2", "1"), model__mlp="none")
    validate(found)
    assert sizes_of(found) == (768, 256, 64) and weights_of(found) == [2.0, 1.0, 0.5]
    assert weights_of(sized(("64", "32"))) == [1.0, 1.0]
    for parts in (("0",), ("8", "8"), ("a",), ("1.5",)):
        with pytest.raises(ValueError):
            read_dimensions(parts)


PROJECTED = {"model__mlp": "none", "projector__widths": "2D,D", "projector__objectives": ("info_nce",)}


@pytest.mark.parametrize(
    ("dimensions", "weights", "fields", "message"),
    [
        (("64", "64"), (), {}, r"matryoshka.dimensions=\('64', '64'\): must be empty, or whole numbers from 1, each"),
        (("64",), ("-1",), {}, r"matryoshka.weights=\('-1',\): must be empty, or numbers of 0 or more"),
        (("64",), ("0",), {}, "one of them above 1e-30"),
        (("64",), ("1e39",), {}, "at most 1e30"),
        (("64",), ("1e-46",), {}, "one of them above 1e-30"),
        (("6_4",), (), {}, "whole numbers from 1"),
        ((64, 32), (), {}, r"matryoshka.dimensions=\(64, 32\): its numbers must be texts, as in \('64', '32'\)"),
        (("64", "32"), ("1",), {}, "matryoshka.weights=1: 1 weights for 2 of matryoshka.dimensions; give one for each"),
        (
            ("64",),
            (),
            {},
            "matryoshka.dimensions: with model.mlp=train the first elements are trained only",
        ),
        ((), ("1",), {}, "matryoshka.weights=1: 1 weights for 0 of matryoshka.dimensions"),
        (("64",), (), PROJECTED, "matryoshka.dimensions: objective.info_nce sees projected embeddings"),
        (
            ("64",),
            (),
            {"objective__info_nce__weight": 0.0, "objective__softmax_nli__weight": 1.0},
            "matryoshka.dimensions: objective.softmax_nli has a classifier of whole embeddings",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(dimensions, weights, fields, message):
    with pytest.raises(UserError, match=f"config.*{message}"):
        validate(sized(dimensions, weights, **fields))


def test_objectives_of_tokens_alone_have_no_sizes():
    assert not [name for name in ineffective(sized(("64",))) if "matryoshka" in name]
    tokens = {"objective__info_nce__weight": 0.0, "objective__mlm__weight": 1.0}
    assert "matryoshka.dimensions=('64',)" in ineffective(sized(("64",), **tokens))
    assert "matryoshka.dimensions=('64',)" in ineffective(sized(("64",), train__epochs=0))


def config_of(**fields):
    config = default_config()
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return config


@pytest.mark.parametrize("name", ["embedding_mse", "margin_mse", "distill_kl", "gist", "ranking_distillation"])
def test_each_needs_a_teacher_or_scores_in_the_data(name):
    weight = {f"objective__{name}__weight": 1.0}
    if name in ("margin_mse", "distill_kl"):
        config = config_of(**weight, data__columns__score="kd", teacher__kept="f", data__score_range=("0", "5"))
        validate(config)
        assert scored_by_data(config) and not scored_by_data(config_of(**weight, teacher__model="m"))
        assert ineffective(config) == ["data.score_range=('0', '5')", "teacher.kept=f"]
        with pytest.raises(UserError, match=r"^config\.teacher\.model: must be set for objective\.gist: a model"):
            validate(config_of(**weight, objective__gist__weight=1.0))
    else:
        with pytest.raises(UserError, match=f"config.teacher.model: must be set for objective.{name}: a model"):
            validate(config_of(**weight))
    with pytest.raises(UserError, match=rf"config.data.mixed: objective.{name} reads all sentences of every example"):
        validate(config_of(**weight, teacher__model="m", data__mixed=True))
    validate(config_of(**weight, teacher__model="m", model__mlp="none"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"objective__gist__margin_kind": "both"}, "objective.gist.margin_kind='both': must be absolute or relative"),
        ({"objective__gist__temperature": 0.0}, "objective.gist.temperature=0.0: must be above 0"),
        ({"objective__margin_mse__similarity": "l2"}, "objective.margin_mse.similarity='l2': must be cosine or dot"),
        ({"objective__distill_kl__temperature": 0.0}, "objective.distill_kl.temperature=0.0: must be above 0"),
        (
            {"projector__widths": "2D,D", "projector__objectives": ("embedding_mse",)},
            "projector.objectives: embedding_mse sees no projected embeddings",
        ),
    ],
)
def test_what_is_out_of_range_is_refused(fields, message):
    with pytest.raises(UserError, match=f"config.{message}"):
        validate(config_of(**fields))


def test_a_teacher_of_nothing_has_no_effect():
    fields = {"teacher__model": "m", "teacher__kept": "folder"}
    assert {"teacher.model=m", "teacher.kept=folder"} <= set(ineffective(config_of(**fields)))
    fields |= {"objective__gist__weight": 1.0}
    assert not [name for name in ineffective(config_of(**fields)) if "teacher" in name]
    assert "teacher.model=m" in ineffective(config_of(**fields, train__epochs=0))
