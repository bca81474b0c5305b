import jax
import numpy as np
import pytest
from support import sentences

from simcse_jax.config.fields import default_config
from simcse_jax.devices.mesh import data_mesh, replicate, replicated_sharding, split_over_examples
from simcse_jax.encoding.embedder import Embedder
from simcse_jax.evaluation.analysis import spectrum
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models.sentence_encoder import build
from simcse_jax.runs.loading import load_model
from simcse_jax.training import dropout_pairs
from simcse_jax.training.loss import make_loss
from simcse_jax.training.setup import make_recipe, make_settings, trains_on_itself


def recipe_of(columns=1, **fields):
    config = default_config()
    named = {name.replace("__", "."): value for name, value in fields.items()}
    config.update_from_flattened_dict({"model.mlp": "none"} | named)
    return make_recipe(config, columns), make_settings(config, 10)


def test_the_terms_of_the_pairs_are_the_loss_of_a_step_on_the_same_sentences(tiny_bert, monkeypatch):
    monkeypatch.setattr(dropout_pairs, "CHUNK", 8)
    model, texts, (recipe, numbers) = load_model(str(tiny_bert)), sentences(21), recipe_of()
    tokenizer, graph = Tokenizer(model.folder, model.config), build(model.config, with_head=False)[0]
    mesh = data_mesh(jax.devices()[:2])  # 21 rows and one that fills up
    embed = Embedder(graph, {}, "cls", False, tokenizer, 32, sharding=split_over_examples(mesh))
    params = {name: value for name, value in model.params.items() if not name.startswith("head.")}
    pairs = dropout_pairs.make_dropout_pairs(embed, recipe, numbers, texts, 32)
    first, second = (np.float64(side) for side in pairs(replicate(params, replicated_sharding(mesh))))
    ids, mask = tokenizer.pad(tokenizer(texts, 32), 32)
    batch = {"input_ids": ids[:, None], "attention_mask": mask[:, None], "index": np.arange(21)}
    (loss, _), _ = jax.jit(make_loss(graph, recipe, data_mesh(jax.devices()[:1])))(params, 0, batch, numbers)
    # Over 20 others the positive is in the loss's sum, too: log(e^p + 20 e^u) - p.
    cosines = spectrum.normalize(first) @ spectrum.normalize(second).T
    positive = np.diag(cosines) / 0.05
    others = np.log([np.mean(np.exp(np.delete(row, i) / 0.05)) for i, row in enumerate(cosines)])
    expected = np.mean(np.logaddexp(positive, others + np.log(20)) - positive)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert spectrum.alignment_term(first, second, 0.05) == pytest.approx(-np.mean(positive))
    assert spectrum.uniformity_term(first, 0.05, second) == pytest.approx(np.mean(others))


def test_they_are_measured_where_a_sentence_is_its_own_positive():
    assert trains_on_itself(recipe_of()[0])
    projected = recipe_of(projector__widths="D", projector__objectives=("info_nce",))
    for other, _ in (recipe_of(2), recipe_of(model__dual_encoder=True), projected):
        assert not trains_on_itself(other)
