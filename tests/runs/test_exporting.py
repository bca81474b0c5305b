import json
import shutil

import numpy as np
import pytest

from simcse_jax import SimCSE
from simcse_jax.errors import UserError
from simcse_jax.runs.exporting import save

TEXTS = ["a cat", "the dog and a cow"]


def test_a_model_is_saved_as_its_attributes_are_and_another_pooler_leaves_the_head_out(trained, tmp_path):
    model = SimCSE(trained)
    model.prompts["query"], model.default_prompt_name, model.normalize, model.max_length = "the ", "query", True, 12
    model.save_pretrained(tmp_path / "model", license="mit", base_model="ann/base", language="en")
    found = SimCSE(tmp_path / "model")
    assert found.card.items() >= {"license": "mit", "base_model": "ann/base", "language": ["en"]}.items()
    assert (found.prompts, found.default_prompt_name, found.max_length) == (model.prompts, "query", 12)
    assert found.normalize and found.use_head == model.use_head
    np.testing.assert_allclose(found.encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    assert "# model" in (tmp_path / "model" / "README.md").read_text()
    found.save_pretrained(tmp_path / "again")  # not a run's: without its card
    np.testing.assert_allclose(SimCSE(tmp_path / "again").encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    assert not (tmp_path / "again" / "README.md").exists()
    with pytest.raises(UserError, match=r"language: is for the card of a run's model, and .*model is not a run"):
        found.save_pretrained(tmp_path / "again", language="en")
    with pytest.raises(TypeError, match="unexpected keyword argument 'licence'"):
        found.save_pretrained(tmp_path / "again", licence="mit")
    model = SimCSE(trained, pooler="avg")
    model.save_pretrained(tmp_path / "model")
    found = SimCSE(tmp_path / "model")
    assert found.pooler == "avg" and not found.use_head
    np.testing.assert_allclose(found.encode(TEXTS), model.encode(TEXTS), atol=1e-5)
    assert "The run has no scores" in (tmp_path / "model" / "README.md").read_text()  # of this model


def test_nothing_else_is_replaced(trained, tmp_path):
    model = SimCSE(trained)
    model.save_pretrained(tmp_path / "model")
    model.save_pretrained(tmp_path / "model")  # an earlier export
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="exists and is not an earlier export"):
        model.save_pretrained(tmp_path / "mine")
    for name in ("checkpoints", "model"):
        with pytest.raises(UserError, match="is a part of a run"):
            save(model._as_set(), trained / name)
    model.save_pretrained(shutil.copytree(trained, tmp_path / "run") / "export")  # next to what a run has
    own = SimCSE(tmp_path / "model", num_layers=1)
    own.save_pretrained(tmp_path / "first layer")
    assert json.loads((tmp_path / "first layer" / "config.json").read_text())["num_hidden_layers"] == 1
    with pytest.raises(UserError, match="is the model's own folder"):
        own.save_pretrained(tmp_path / "model")
    for name, value in (("truncate_dim", -3), ("default_prompt_name", "none"), ("similarity_fn_name", "angle")):
        wrong = SimCSE(tmp_path / "model")
        setattr(wrong, name, value)
        with pytest.raises(UserError, match=name.replace("default_", "")):
            wrong.save_pretrained(tmp_path / "new")


def test_a_model_goes_to_the_hub(trained, tmp_path, monkeypatch):
    from simcse_jax.huggingface import hub

    pushed = []

    def push(folder, *args):
        pushed.append(([file.name for file in sorted(folder.iterdir())], *args))
        assert "\nlanguage:\n- en\n" in (folder / "README.md").read_text()
        return "https://hub/commit"

    monkeypatch.setattr(hub, "check_push", lambda *args: None)
    monkeypatch.setattr(hub, "push", push)
    assert SimCSE(trained).push_to_hub("me/mine", private=True, revision="dev", language="en") == "https://hub/commit"
    ((files, *rest),) = pushed
    assert rest == ["me/mine", True, "dev"] and {"README.md", "model.safetensors", "modules.json"} <= {*files}
