import pytest

from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError


def config_of(**fields):
    config = default_config()
    config.update_from_flattened_dict({f"model.{name.replace('__', '.')}": value for name, value in fields.items()})
    return config


def test_an_adapter_needs_a_rank():
    validate(config_of(lora__init_from="folder", lora__rank=4))
    with pytest.raises(UserError, match=r"config\.model\.lora\.init_from=folder: model\.lora\.rank is 0"):
        validate(config_of(lora__init_from="folder"))


@pytest.mark.parametrize(("name", "value"), [("lora.rank", -1), ("lora.alpha", 0.0), ("lora.dropout", 1.0)])
def test_bounds(name, value):
    config = default_config()
    config.update_from_flattened_dict({f"model.{name}": value})
    with pytest.raises(UserError, match=f"config.model.{name}={value}: must be"):
        validate(config)


def test_what_has_no_effect_is_said():
    without = ineffective(config_of(lora__alpha=8.0, lora__targets=("query",), lora__dropout=0.1))
    assert {line.partition("=")[0] for line in without} == {f"model.lora.{x}" for x in ("alpha", "targets", "dropout")}
    assert not ineffective(config_of(freeze__embeddings=True, freeze__layers=3))
    assert ineffective(config_of(freeze__embeddings=True, lora__rank=4)) == ["model.freeze.embeddings=True"]
