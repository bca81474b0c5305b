import json
import shutil

import numpy as np
import pytest
from support import sentences

from simcse_jax.evaluation import geometry
from simcse_jax.host.storage import as_path
from simcse_jax.runs.kept import checkpoint_encoders, steps_of
from simcse_jax.simcse import SimCSE


def test_every_checkpoint_is_encoded_with_its_own_parameters(trained, tmp_path):
    """The newest one is what the run loads as when no other checkpoint is there."""
    latest = shutil.copytree(trained, tmp_path / "latest")
    *before, last = steps_of(trained)
    for step in before:
        shutil.rmtree(latest / "checkpoints" / str(step))
    embedders = {kept.step: kept.embed for kept in checkpoint_encoders(as_path(str(trained)))}
    some = sentences(12, seed=5)
    embeddings = {step: embed(some) for step, embed in embedders.items()}
    model = SimCSE(str(latest))
    assert model.use_head
    assert np.allclose(embeddings[last], model.encode(some), atol=1e-6)
    assert not np.allclose(embeddings[last], embeddings[before[-1]], atol=1e-4)


def test_step_0_is_the_start_of_the_run(trained, tiny_bert):
    """With the fresh head that its seed gives: the run has scored it before the first step."""
    step, embed = next(checkpoint_encoders(as_path(str(trained))))
    lines = map(json.loads, (trained / "metrics.jsonl").read_text().splitlines())
    before = next(line["eval/dev"] for line in lines if line["step"] == 0 and "eval/dev" in line)
    assert step == 0
    data = json.loads((trained / "run.json").read_text())["config"]["eval"]["data"]
    assert geometry.measure(embed, geometry.read(data)).spearman == pytest.approx(before, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"init_from": "no/such/model"}, "no/such/model"),
        ({"weights": "0" * 64}, "other weights than the run started from"),
    ],
    ids=["gone", "changed"],
)
def test_a_start_that_is_not_there_any_more_is_left_out(trained, tmp_path, capsys, change, message):
    workdir = shutil.copytree(trained, tmp_path / "moved")
    about = json.loads((workdir / "run.json").read_text())
    about["config"]["model"]["init_from"] = change.get("init_from", about["config"]["model"]["init_from"])
    about["sha256"]["model.init_from"] = change.get("weights", about["sha256"]["model.init_from"])
    (workdir / "run.json").write_text(json.dumps(about))
    assert [kept.step for kept in checkpoint_encoders(as_path(str(workdir)))] == steps_of(trained)
    assert message in capsys.readouterr().out
