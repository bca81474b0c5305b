"""DiffCSE's recipe in whole runs: what is trained and kept, resuming, and several runs in one program."""

import json
import shutil

import numpy as np
import pytest
from support import ROOT
from support.models import add_language_model
from support.resuming import trained_and_resumed

from simcse_jax.config.checks import validate
from simcse_jax.config.flags import parse
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.runs import exporting
from simcse_jax.runs.loading import load_model
from simcse_jax.training.run import train_and_evaluate

pytestmark = pytest.mark.slow


def config_of(folder, corpus, variant="simcse_plus_plus", **fields):
    config, _ = parse([f"--config={ROOT / 'configs' / 'diffcse.py'}:{variant}", "--workdir=w"])
    chosen = {"model.init_from": str(folder), "model.generator": str(folder), "data.train": str(corpus["txt"])}
    chosen |= {"eval.data": str(corpus["dev"]), "eval.every": 2, "train.batch_size": 8, "train.max_steps": 4}
    chosen |= {"data.max_length": 16, "train.learning_rate": 1e-3, "parallel.devices": 2, "parallel.chunk_size": 3}
    config.update_from_flattened_dict(chosen | {name.replace("__", "."): value for name, value in fields.items()})
    validate(config)
    return config


def test_a_run_is_resumed_bit_for_bit_with_the_same_generator_alone_and_exported_without_it(
    language_model, corpus, tmp_path
):
    generator = shutil.copytree(language_model, tmp_path / "generator")
    config = config_of(language_model, corpus, model__generator=str(generator))
    straight = trained_and_resumed(config, tmp_path)
    assert {name.partition(".")[0] for name in straight} == {
        "encoder",
        "projector",
        "discriminator",
        "replaced_token_detection",
    }
    assert "model.generator" in json.loads((tmp_path / "run" / "run.json").read_text())["sha256"]

    model = load_model(f"{tmp_path / 'run'}@step=4")
    assert {name.partition(".")[0] for name in model.params} == {"encoder"} and model.language_model is None
    for name, value in model.params.items():
        np.testing.assert_array_equal(value, straight[name])
    exporting.export(tmp_path / "run", tmp_path / "exported")
    assert load(str(tmp_path / "exported")).params.keys() == model.params.keys()

    again = tmp_path / "stopped"
    shutil.rmtree(again / "checkpoints" / "4")
    add_language_model(generator, seed=2)
    with pytest.raises(UserError, match=r"the contents of model\.generator=.* have changed"):
        train_and_evaluate(config, str(again))
