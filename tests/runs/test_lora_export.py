"""A run's LoRA for PEFT; `tests/training/test_lora.py` exports a whole run."""

import contextlib
import json
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file
from support import CONFIGS

from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError
from simcse_jax.huggingface.peft import WEIGHTS
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.runs import lora_export
from simcse_jax.runs.lora_export import adapter_writer, base_for_peft, check_adapter
from simcse_jax.runs.workdir import resolved


def run_of(**fields):
    config = default_config()
    config.update_from_flattened_dict({f"model.{name.replace('__', '.')}": value for name, value in fields.items()})
    return {"config": resolved(config), "model": {"max_length": 32}}


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
    with pytest.raises(UserError, match="run: its model has modules after its pooler, which is not in an adapter"):
        check_adapter(run_of(lora__rank=2) | {"model": {"modules": [{"kind": "Normalize"}]}}, "run")


def run_folder(folder, **fields):
    run = run_of(lora__rank=2) | {"sha256": {}, "model": {"max_length": 32}}
    run["config"]["objective"] |= fields
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(CONFIGS["bert"]))
    return folder


@pytest.fixture
def saved(monkeypatch):
    """A checkpoint of zeros; `others` says whether it was read as one that may have more."""

    def restore_params(step, shapes, others):
        found.others = others
        return {name: np.zeros(each.shape) for name, each in shapes.items()}

    found = SimpleNamespace(
        steps=[3], best=3, restore_params=restore_params, tower=lambda step: 0, close=lambda: None, others=None
    )
    monkeypatch.setattr(lora_export, "checkpoints_of", lambda folder: contextlib.closing(found))
    return found


def test_parameters_of_an_objective_of_one_s_own_are_left_out(saved, tmp_path):
    adapter_writer(run_folder(tmp_path, own_loss={"weight": 1.0}))
    assert saved.others


def test_the_card_says_how_embeddings_are_made(saved, tmp_path):
    folder = run_folder(tmp_path)
    run = json.loads((folder / "run.json").read_text())
    run["model"] |= {"prompts": {"query": "Instruct: \n", "document": ""}, "kept": {"normalize": True}}
    (folder / "run.json").write_text(json.dumps(run))
    (tmp_path / "out").mkdir()
    adapter_writer(folder)(tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.endswith(
        'hidden states. It has unit length.\n\nTexts put before sentences:\n\n- query: `"Instruct: \\n"`\n'
    )


@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_a_head_of_masked_words_is_left_out_and_that_is_said(weight, saved, tmp_path, capsys):
    write = adapter_writer(run_folder(tmp_path, mlm={"weight": weight}))
    assert ("its head of masked words is left out" in capsys.readouterr().out) == bool(weight)
    (tmp_path / "out").mkdir()
    write(tmp_path / "out")
    assert not saved.others
    assert len(load_file(tmp_path / "out" / WEIGHTS)) == 8  # A and B of queries and values


def test_without_a_checkpoint_there_is_nothing_to_write(tmp_path):
    run_folder(tmp_path)
    with pytest.raises(UserError, match="no checkpoint has been saved yet"):
        adapter_writer(tmp_path)


def test_the_base_is_named_as_transformers_opens_it(tiny_bert, minilm, tmp_path, monkeypatch, capsys):
    hub = ["model.init_from"]
    assert base_for_peft("me/model@v2", hub) == ("me/model", "v2") and base_for_peft("bert", hub) == ("bert", None)
    assert base_for_peft(minilm, []) == (str(resolve(minilm)), None)
    monkeypatch.chdir(tiny_bert.parent)
    assert base_for_peft(tiny_bert.name, []) == (str(tiny_bert), None)
    assert base_for_peft("moved/away", []) == ("moved/away", None)
    assert not capsys.readouterr().out
    (tmp_path / "run.json").write_text("{}")
    assert base_for_peft(f"{tmp_path}@step=3", []) == (str(tmp_path), None)
    assert "is a run: before PEFT opens its base, export it" in capsys.readouterr().out
