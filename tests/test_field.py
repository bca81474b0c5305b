import math

import pytest

from simcse_jax import field as rules
from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError
from simcse_jax.field import BELOW_ONE, Field, explain, field, number

NAMES = ("STS12", "STS13")
BROKEN = [
    (rules.at_least(0), -1, "f=-1: must be 0 or more"),
    (rules.at_least(0), math.nan, "f=nan: must be 0 or more"),
    (rules.at_least(0), math.inf, "f=inf: must be 0 or more"),
    (rules.at_least(2, "why"), 1, "f=1: must be 2 or more (why)"),
    (rules.at_most(9), 10, "f=10: must be at most 9"),
    (rules.at_most(9), math.nan, "f=nan: must be at most 9"),
    (rules.above(0), 0, "f=0: must be above 0"),
    (rules.above(0, "why"), math.inf, "f=inf: must be above 0 (why)"),
    (rules.nonempty("a file"), "", "f='': must be a file"),
    (rules.one_of((*NAMES, "MR")), "", "f='': must be one of STS12, STS13, MR"),
    (rules.one_of(NAMES), "x", "f='x': must be STS12 or STS13"),
    (rules.empty_or_one_of(NAMES), "x", "f='x': must be empty or one of STS12, STS13"),
    (rules.each_once("task", NAMES), ("STS31",), "f: no task 'STS31'; the nearest one is STS13"),
    (rules.each_once("task", NAMES), ("STS12", "STS12"), "f: STS12 is given twice; list each task once"),
    (BELOW_ONE, 1.0, "f=1.0: must be at least 0 and below 1"),
]
KEPT = [
    (rules.at_least(0), (0, 0.0, 5)),
    (rules.at_most(9), (9, -1)),
    (rules.above(0), (1e-9, 1)),
    (rules.nonempty("a file"), ("x",)),
    (rules.one_of(NAMES), NAMES),
    (rules.empty_or_one_of(NAMES), ("", *NAMES)),
    (rules.each_once("task", NAMES), ((), NAMES)),
    (BELOW_ONE, (0.0, 0.999)),
]


def test_a_broken_rule_names_field_and_value_and_a_field_says_when_it_has_an_effect():
    for rule, value, message in BROKEN:
        with pytest.raises(UserError) as caught:
            rule.check("f", value)
        assert str(caught.value).startswith(message)
    for rule, values in KEPT:
        for value in values:
            rule.check("f", value)
    assert field(3, "Three.", BELOW_ONE) == Field(3, "Three.", (BELOW_ONE,))
    assert number(0.5, "Half.") == Field(0.5, "Half.", of_step=True)
    assert explain({"a": "the first", "b": "the last"}) == "a: the first; b: the last"
    config = default_config()
    config.train.optimizer = "rmsprop"
    config.model.lora.rank = 4
    for only, expected in (
        ("", True),
        ("model.lora.rank", True),
        ("model.convolutions.widths", False),
        ("train.optimizer=rmsprop", True),
        ("train.optimizer=adamw", False),
    ):
        assert field(0, "A number.", only=only).has_effect(config) is expected
