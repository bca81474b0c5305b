import shutil

import numpy as np
import pytest

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.loading import load_model, load_workdir


def test_a_workdir_is_its_best_checkpoint_or_the_one_that_is_named_with_the_head_that_belongs_to_it(trained):
    model = load_model(str(trained))
    assert model.has_head and (model.name, model.pooler) == (str(trained), "cls")
    checkpoints = Checkpoints(trained, read_only=True)
    like = {name: np.empty(value.shape, value.dtype) for name, value in model.params.items()}
    best = checkpoints.restore_params(checkpoints.best, like)
    assert all(np.array_equal(model.params[name], best[name]) for name in like)
    assert load_model(f"{trained}@step={checkpoints.steps[0]}", 1).config.num_layers == 1
    first, *_, last = checkpoints.steps
    saved = {step: checkpoints.restore_params(step, like) for step in (first, last)}
    for step, name in ((first, f"{trained}@step={first}"), (last, f"{trained}@step=last")):
        model = load_model(name)
        assert model.name == name and model.has_head
        assert all(np.array_equal(model.params[part], saved[step][part]) for part in like)
    assert any(not np.array_equal(saved[first][name], saved[last][name]) for name in like)


def test_layers_are_left_out_from_the_end_and_what_a_run_does_not_have_is_refused(trained, tiny_bert, tmp_path):
    whole, part = load_workdir(trained), load_workdir(trained, 1)
    assert part.config.num_layers == 1 and part.params.keys() < whole.params.keys()
    with pytest.raises(UserError, match="the model has 2 layers"):
        load_workdir(trained, 3)
    with pytest.raises(UserError, match=r"trained: has no checkpoint of step 9; it has .*\d+ \(the best one\)"):
        load_model(f"{trained}@step=9")
    for name in (f"{tiny_bert}@step=last", "package:json@step=3", "none-such@step=3"):
        with pytest.raises(UserError, match="is not a run's folder, so it has no checkpoints"):
            load_model(name)
    assert load_model(str(tiny_bert)).params.keys() == load(str(tiny_bert)).params.keys()  # Hugging Face's
    workdir = shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(workdir / "checkpoints")
    with pytest.raises(UserError, match="no checkpoint has been saved yet"):
        load_workdir(workdir)
