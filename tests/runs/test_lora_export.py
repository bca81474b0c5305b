import contextlib
import json
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file
from support import CONFIGS
from support.listed import record

from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError
from simcse_jax.huggingface.peft import WEIGHTS
from simcse_jax.huggingface.resolve import resolve
from simcse_jax.runs import lora_export
from simcse_jax.runs.lora_export import adapter_writer, base_for_peft, check_adapter


def run_of(**fields):
    config = default_config()
    config.update_from_flattened_dict({f"model.{name.replace('__', '.')}": value for name, value in fields.items()})
    return record(config)


def test_a_model_that_is_more_than_base_and_lora_is_refused():
    lora = {"lora__rank": 2}
    check_adapter(run_of(**lora), "run")
    for run, said in (
        (run_of(), "has no LoRA"),
        (run_of(**lora, mlp="always"), "its model has a head, which is not in an adapter"),
        (run_of(**lora, convolutions__widths=("3",), mlp="none"), "its model has convolutions"),
        (run_of(**lora, num_layers=3), "its model has the first 3 layers of its base alone"),
        (run_of(**lora) | {"model": {"modules": [{"kind": "Normalize"}]}}, "its model has modules after its pooler"),
    ):
        with pytest.raises(UserError, match=f"run: {said}"):
            check_adapter(run, "run")


def run_folder(folder, model=(), **fields):
    run = run_of(lora__rank=2) | {"model": {"max_length": 32, **dict(model)}}
    run["config"]["objective"] |= fields
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(CONFIGS["bert"]))
    return folder


@pytest.fixture
def saved(monkeypatch):
    def restore_params(step, shapes):
        return {name: np.zeros(each.shape) for name, each in shapes.items()}

    found = SimpleNamespace(steps=[3], best=3, restore_params=restore_params)
    found.tower, found.close = lambda step: 0, lambda: None
    monkeypatch.setattr(lora_export, "open_checkpoints", lambda folder: contextlib.closing(found))
    return found


def test_the_card_says_how_embeddings_are_made_and_a_head_of_masked_words_is_left_out(saved, tmp_path, capsys):
    kept = {"prompts": {"query": "Instruct: \n", "document": ""}, "kept": {"normalize": True}}
    (tmp_path / "out").mkdir()
    adapter_writer(run_folder(tmp_path, kept))(tmp_path / "out")
    end = 'hidden states. It has unit length.\n\nTexts put before sentences:\n\n- query: `"Instruct: \\n"`\n'
    assert (tmp_path / "out" / "README.md").read_text().endswith(end)
    for weight in (0.0, 0.1):
        (folder := tmp_path / f"{weight}").mkdir()
        write = adapter_writer(run_folder(folder, mlm={"weight": weight, "mask_token": ""}))
        assert ("its head of masked words is left out" in capsys.readouterr().out) == bool(weight)
        (folder / "out").mkdir()
        write(folder / "out")
        assert len(load_file(folder / "out" / WEIGHTS)) == 8  # A and B of queries and values


def test_the_base_is_named_as_transformers_opens_it(tiny_bert, minilm, tmp_path, monkeypatch, capsys):
    hub = ["model.init_from"]
    assert base_for_peft("me/model@v2", hub) == ("me/model", "v2") and base_for_peft("bert", hub) == ("bert", None)
    assert base_for_peft(minilm, []) == (str(resolve(minilm)), None)
    monkeypatch.chdir(tiny_bert.parent)
    assert base_for_peft(tiny_bert.name, []) == (str(tiny_bert), None)
    assert base_for_peft("moved/away", []) == ("moved/away", None) and not capsys.readouterr().out
    (tmp_path / "run.json").write_text("{}")
    assert base_for_peft(f"{tmp_path}@step=3", []) == (str(tmp_path), None)
    assert "is a run: before PEFT opens its base, export it" in capsys.readouterr().out
