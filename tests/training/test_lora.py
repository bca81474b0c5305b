import json
import shutil

import numpy as np
import pytest
from support import assert_arrays, call, lines, refused, succeeded, train_args
from support.gradients import compiled, computed
from support.resuming import trained_and_resumed
from support.steps import batch, recipe, settings

from simcse_jax.config.flags import parse
from simcse_jax.host.storage import as_path
from simcse_jax.huggingface.load import load
from simcse_jax.models import partial
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.dynamics import starting_params
from simcse_jax.runs.loading import load_model
from simcse_jax.runs.state import add_parts, initial_params, model_spec, split_shapes
from simcse_jax.simcse import SimCSE

LORA = ["--config.model.lora.rank=2", "--config.model.lora.dropout=0.2"]
FROZEN = ["--config.model.freeze.layers=1", "--config.model.freeze.embeddings=True"]
NUMBERS = settings(lora_dropout=0.2)


def config_of(model, corpus, *more):
    config, _ = parse(train_args(model, corpus["txt"], corpus["dev"], "w", *more))
    return config


def train(model, corpus, workdir):
    more = ["--config.train.max_steps=3", "--config.train.learning_rate=0.1"]
    succeeded(call("train", *train_args(model, corpus["txt"], corpus["dev"], workdir, *LORA, *more)))


@pytest.fixture(scope="module")
def run_with_lora(tiny_bert, corpus, shared):
    return shared("run-with-lora", lambda workdir: train(tiny_bert, corpus, workdir))


def parts(tiny_bert, corpus, *more):
    config, model = config_of(tiny_bert, corpus, *more), load(str(tiny_bert))
    spec = model_spec(config)
    encoder = add_parts(model.config, spec)
    graph, _ = build(encoder, with_head=True)
    trained, frozen = partial.split(initial_params(spec, model), encoder)
    noise = np.random.default_rng(0)
    trained = {name: value + noise.normal(0, 0.1, value.shape).astype(np.float32) for name, value in trained.items()}
    return graph, trained, partial.in_step(frozen)


def loss_and_gradient(tiny_bert, corpus, fields, devices=1, **changes):
    graph, trained, frozen = parts(tiny_bert, corpus, *fields)
    function = compiled(graph, recipe(3, **changes), devices)
    return computed(function, trained, batch(3), NUMBERS, frozen), trained.keys()


@pytest.mark.slow
@pytest.mark.exact
@pytest.mark.parametrize("fields", [LORA, FROZEN])
def test_gradients_of_what_trains_are_the_same_in_chunks_by_layer_on_4_devices(fields, tiny_bert, corpus, monkeypatch):
    monkeypatch.setattr("simcse_jax.training.gathering.SMALL", 512)
    (loss, gradient), trained = loss_and_gradient(tiny_bert, corpus, fields)
    assert gradient.keys() == trained and not {name for name in gradient if "embeddings" in name}
    (again, found), _ = loss_and_gradient(tiny_bert, corpus, fields, 4, chunk_size=1, by_layer=True)
    assert again == pytest.approx(loss, rel=1e-5)
    for name, value in gradient.items():
        assert np.abs(value).max() > 1e-7 or "qkv.bias" in name, name
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5 * float(np.abs(value).max() + 1e-3))


@pytest.mark.slow
def test_checkpoints_hold_what_trains_and_the_folder_the_rest_once(run_with_lora, tiny_bert):
    base = SimCSE(str(tiny_bert), pooler="cls")
    run = json.loads((run_with_lora / "run.json").read_text())
    assert "model/frozen.safetensors" in run["sha256"]
    size = sum(file.stat().st_size for file in (run_with_lora / "checkpoints" / "3" / "params").rglob("*"))
    assert size < (tiny_bert / "model.safetensors").stat().st_size
    trained = SimCSE(str(run_with_lora))
    sentences = ["the cat sat on the mat.", "a dog"]
    assert np.abs(trained.encode(sentences) - base.encode(sentences)).max() > 1e-4
    scored = {line["step"]: line["eval/dev"] for line in lines(run_with_lora) if "eval/dev" in line}
    result = json.loads((run_with_lora / "result.json").read_text())["dev"]["spearman"]
    assert result == pytest.approx(scored[3], abs=0.01) and abs(result - scored[0]) > 0.1


@pytest.mark.slow
def test_an_export_is_merged_or_an_adapter_that_trains_further(run_with_lora, tiny_bert, corpus, tmp_path, capsys):
    assert call("export", "--workdir", run_with_lora, "--output", tmp_path / "merged").returncode == 0
    done = call("export", "--workdir", run_with_lora, "--output", tmp_path / "adapter", "--adapter")
    assert done.returncode == 0 and "PeftModel" in done.stdout, done.stderr
    model, merged = load_model(str(run_with_lora)), load(str(tmp_path / "merged"))
    assert_arrays(merged.params, model.params, atol=1e-6)
    more = ["--config.model.lora.rank=2", f"--config.model.lora.init_from={tmp_path / 'adapter'}"]
    again = tmp_path / "again"
    arguments = train_args(tiny_bert, corpus["txt"], corpus["dev"], again, *more)
    done = succeeded(call("train", *arguments, "--config.train.max_steps=0", "--config.train.epochs=0"))
    scores = [json.loads((folder / "result.json").read_text()) for folder in (run_with_lora, again)]
    assert scores[0]["dev"]["spearman"] == pytest.approx(scores[1]["dev"]["spearman"], abs=0.01)
    run, scored = json.loads((again / "run.json").read_text()), load_model(str(again))
    assert_arrays(starting_params(as_path(str(again)), run), scored.params)
    run["sha256"]["model.lora.init_from"] = "0" * 64
    capsys.readouterr()
    assert starting_params(as_path(str(again)), run) is None
    assert "the adapter has other weights" in capsys.readouterr().out


@pytest.mark.slow
def test_a_folder_without_its_frozen_part_is_refused_until_the_run_goes_on(run_with_lora, tiny_bert, corpus, tmp_path):
    damaged = shutil.copytree(run_with_lora, tmp_path / "run")
    (damaged / "model" / "frozen.safetensors").unlink()
    refused(call("export", "--workdir", damaged, "--output", tmp_path / "model"), "frozen.safetensors")
    train(tiny_bert, corpus, damaged)
    sentences = ["the cat sat on the mat."]
    again, before = (SimCSE(str(folder)).encode(sentences) for folder in (damaged, run_with_lora))
    np.testing.assert_array_equal(again, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields", [["model.dual_encoder=True"], ["parallel.devices=4", "parallel.parts=2", "parallel.gather=layer"]]
)
def test_a_run_is_resumed_bit_for_bit(fields, tiny_bert, corpus, tmp_path, monkeypatch):
    """Also by layer on 2 × 2 devices, with scores, for which the model is put together."""
    monkeypatch.setattr("simcse_jax.training.gathering.SMALL", 512)
    more = [*LORA, *(f"--config.{field}" for field in (*fields, "eval.every=2", "train.max_steps=4"))]
    straight = trained_and_resumed(config_of(tiny_bert, corpus, *more), tmp_path)
    assert not any("embeddings" in name for name in straight)


def test_a_discriminator_trains_whole(language_model, corpus):
    """DiffCSE: the encoder trains in part, the discriminator is a copy of the base, the generator is frozen."""
    own = [f"--config.model.generator={language_model}", "--config.objective.replaced_token_detection.weight=0.1"]
    model = load(str(language_model)).config
    trained = split_shapes(model, model_spec(config_of(language_model, corpus, *own, *LORA)))[0]
    _, of_base = build(model, with_head=False)
    assert {"discriminator." + name for name in of_base} == {name for name in trained if "discriminator" in name}
    assert {name for name in of_base if name in trained} < of_base.keys()
