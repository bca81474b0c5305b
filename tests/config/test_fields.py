import pytest
from support.configs import config_of

from simcse_jax.config.fields import FIELDS, SECTIONS, default_config, flatten, make_defaults, numbers_of_step, trains
from simcse_jax.errors import UserError
from simcse_jax.field import number


def test_the_default_config_has_every_field_and_is_another_one_each_time():
    config = default_config()
    assert flatten(config) == {name: field.default for name, field in FIELDS.items()}
    config.data.columns.anchor = "a"
    assert default_config().data.columns.anchor == FIELDS["data.columns.anchor"].default == ""
    assert make_defaults({"a.b.c": number(1.5, "")}).a.b.c == 1.5


def test_a_field_has_a_meaning_a_heading_and_bounds_and_its_default_keeps_these():
    sections = {".".join(name.split(".")[:end]) for name in FIELDS for end in range(1, name.count(".") + 1)}
    assert sections == set(SECTIONS)
    for name, field in FIELDS.items():
        assert field.meaning[0].isupper() or field.meaning[0].isdigit(), name
        assert field.meaning.endswith((".", "…")), name
        assert isinstance(field.default, bool | int | float | str | tuple), name
        for rule in field.rules:
            rule.check(name, field.default)
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            least = -2 if field.default == -1 else -1  # -1: as another field
            with pytest.raises(UserError, match=f"{name}={least}"):
                field.rules[0].check(name, least)


def test_the_numbers_of_the_step():
    compiled_in = {"objective.info_nce.margin", "objective.info_nce.hardness"}  # off, they are no part of a step
    floats = {name for name in FIELDS if name.startswith("objective.") and isinstance(FIELDS[name].default, float)}
    others = "seed model.dropout model.attention_dropout model.lora.dropout views.noise views.cutoff train.milestones"
    others += " views.positive_dropout train.learning_rate train.weight_decay train.max_grad_norm train.epsilon"
    others += " train.ema_decay"
    assert set(numbers_of_step()) == floats - compiled_in | {*others.split(), "train.warmup", "matryoshka.weights"}
    assert FIELDS["objective.off_dropout.m"].of_step
    assert not FIELDS["objective.barlow_twins.artificial"].of_step
    assert not FIELDS["data.augment.percent"].of_step
    # A run trains unless it has neither epochs nor steps.
    for epochs, steps, expected in ((1, 0, True), (0, 0, False), (0, 1, True)):
        assert trains(config_of(train__epochs=epochs, train__max_steps=steps)) is expected
