import dataclasses
import json
import shutil

import numpy as np
import pytest
from support import random_model
from support.models import edit_json

from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import load
from simcse_jax.models.config import Convolutions
from simcse_jax.models.sentence_encoder import build
from simcse_jax.training.generator import build_networks, read_generator


def read(folder, model=None, longest=16):
    return read_generator(str(folder), model or load(str(folder)), ("data.max_length", longest))


def test_the_generator_has_its_encoder_and_its_head_but_no_pooler(language_model):
    generator = read(language_model)
    assert generator.masking.mask_id in generator.masking.special_ids
    found = generator.params
    assert {name.split(".")[0] for name in found} == {"encoder", "language_model"}
    np.testing.assert_array_equal(found["language_model.bias"], np.zeros(40))
    changed = dataclasses.replace(generator.model, params=generator.model.params | {"encoder.x": np.ones(1)})
    other = generator._replace(model=changed)
    assert other.fingerprint != generator.fingerprint == read(language_model).fingerprint


def test_generators_that_do_not_fit_are_refused(language_model, tiny_bert, tmp_path):
    model = load(str(language_model))
    other = shutil.copytree(language_model, tmp_path / "other")
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["cat"], vocabulary["dog"] = cat, _ = vocabulary["dog"], vocabulary["cat"]
    edit_json(other / "tokenizer.json", model=tokenizer["model"])
    smaller = dataclasses.replace(model, config=dataclasses.replace(model.config, vocab_size=39))
    for folder, encoder, longest, named in (
        (tiny_bert, model, 16, "has no masked-language-model head"),
        (language_model, model, 65, "data.max_length=65: model.generator takes at most 64"),
        ("/no/such", model, 16, "no such folder"),
        (other, model, 16, f"model.generator={other}: .* the token 'cat' has the number {cat} there"),
        (language_model, smaller, 16, "its weights have 40 words"),
    ):
        with pytest.raises(UserError, match=f"(?s){named}"):
            read(folder, encoder, longest)


def test_the_discriminator_has_no_convolutions_as_its_parameters_have_none():
    _, _, encoder = random_model(num_layers=1, with_head=False)
    own = dataclasses.replace(encoder, convolutions=Convolutions((1, 3), 8, "none"))
    networks = dict(build_networks(own, encoder, kernels=False, dtype="float32"))
    assert networks["discriminator"] == networks["generator"] == build(encoder, False)[0]
