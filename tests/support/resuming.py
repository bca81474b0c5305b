"""A run that is trained in one go, and again from the checkpoint before its last."""

import json
import shutil

from simcse_jax.runs.checkpoints import Checkpoints
from simcse_jax.runs.loading import load_model
from simcse_jax.runs.state import model_spec, split_shapes
from simcse_jax.training.run import train_and_evaluate
from support import assert_arrays


def trained_and_resumed(config, folder, step=2, last=4):
    """Trains in `folder`/run, and in `folder`/stopped as after a kill at `step`: both end with the bits it returns."""
    train_and_evaluate(config, str(folder / "run"))
    stopped = shutil.copytree(folder / "run", folder / "stopped")
    shutil.rmtree(stopped / "checkpoints" / str(last))
    (stopped / "result.json").unlink()
    lines = (stopped / "metrics.jsonl").read_text().splitlines()
    kept = [line for line in lines if json.loads(line)["step"] <= step]
    (stopped / "metrics.jsonl").write_text("\n".join(kept) + "\n")
    train_and_evaluate(config, str(stopped))
    shapes = split_shapes(load_model(str(folder / "run")).config, model_spec(config))[0]
    ended = (Checkpoints(folder / name, read_only=True) for name in ("run", "stopped"))
    straight, resumed = (checkpoints.restore_params(last, shapes) for checkpoints in ended)
    assert_arrays(resumed, straight)
    return straight
