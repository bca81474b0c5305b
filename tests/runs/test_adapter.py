"""A run's LoRA for PEFT; `tests/training/test_lora.py` exports a whole run."""

import json

import pytest
from support import CONFIGS

from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError
from simcse_jax.runs.adapter import adapter_writer, check_adapter
from simcse_jax.runs.workdir import resolved


def run_of(**fields):
    config = default_config()
    config.update_from_flattened_dict({f"model.{name.replace('__', '.')}": value for name, value in fields.items()})
    return {"config": resolved(config)}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"lora__rank": 0}, r"has no LoRA \(its model\.lora\.rank is 0\); leave out --adapter"),
        ({"mlp": "always"}, "its model has a head, which is not in an adapter"),
        ({"convolutions__widths": ("3",), "mlp": "none"}, "its model has convolutions"),
        ({"num_layers": 3}, "its model has the first 3 layers of its base alone"),
    ],
)
def test_a_model_that_is_more_than_base_and_lora_is_refused(fields, said):
    check_adapter(run_of(lora__rank=2), "run")
    with pytest.raises(UserError, match=f"run: {said}"):
        check_adapter(run_of(**{"lora__rank": 2} | fields), "run")
    with pytest.raises(UserError, match="run: has no LoRA"):  # a run of an earlier version
        check_adapter({"config": {"model": {"mlp": "none", "init_from": "x"}}}, "run")


def test_without_a_checkpoint_there_is_nothing_to_write(tmp_path):
    run = run_of(lora__rank=2) | {"sha256": {}, "model": {"max_length": 32}}
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIGS["bert"]))
    with pytest.raises(UserError, match="no checkpoint has been saved yet"):
        adapter_writer(tmp_path)
