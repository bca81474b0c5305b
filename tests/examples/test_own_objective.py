import importlib.metadata
import json
import shutil
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import config_dict
from support import ROOT, call, random_model, refused, train_args
from support.gradients import assert_same, compiled, computed
from support.resuming import trained_and_resumed
from support.steps import BATCH, INFO_NCE, alone, batch, recipe, settings

from simcse_jax import SimCSE
from simcse_jax.config.checks import ineffective, validate
from simcse_jax.config.fields import default_config
from simcse_jax.config.flags import parse
from simcse_jax.errors import UserError
from simcse_jax.objectives import registry
from simcse_jax.objectives.objective import Objective, Parameters, Term
from simcse_jax.objectives.rows import dropout_keys
from simcse_jax.objectives.views import OWN
from simcse_jax.runs import exporting
from simcse_jax.training.setup import make_recipe

EXAMPLE = ROOT / "examples" / "own_objective.py"
NUMBERS = {"uniformity": {"weight": 0.5, "spread": 2.0}}
NUMBERS |= {"info_nce": {"weight": 1.0, "temperature": 0.05, "hard_negative_weight": 1.0}}


@pytest.fixture(autouse=True)
def forgotten(monkeypatch):
    """The objectives of one test are not those of another."""
    monkeypatch.setattr(registry, "OBJECTIVES", registry.OBJECTIVES)
    before = dict(registry.OBJECTIVES)
    yield
    registry.OBJECTIVES.clear()
    registry.OBJECTIVES.update(before)


def config_of(file=EXAMPLE, **fields):
    config, _ = parse([f"--config={file}"], needs_workdir=False)
    config.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
    return config


def objective():
    config_of()
    return registry.OBJECTIVES["uniformity"]


@pytest.mark.slow
@pytest.mark.exact
def test_it_is_the_same_on_two_devices_in_chunks():
    graph, params, _ = random_model(num_layers=1)
    chosen, numbers = recipe(1, objectives=(Term(objective()),)), settings(objective=NUMBERS)
    expected = computed(compiled(graph, chosen), params, batch(1), numbers)
    found = computed(compiled(graph, chosen._replace(chunk_size=2), 2), params, batch(1), numbers)
    assert_same(found, expected)


def test_its_views_are_whole_and_shortened_sentences():
    data = {name: x[:, 0] for name, x in batch(1).items() if name != "index"}
    (keys,) = dropout_keys(3, 0, jnp.arange(BATCH), [(1 << 19) + OWN])
    views = objective().views(recipe(1).plan)
    assert (views["whole"].change, views["shortened"].masks) == ("none", (OWN,))
    ids, mask = views["shortened"].change(keys, data["input_ids"], data["attention_mask"])
    lengths = data["attention_mask"].sum(1), np.asarray(mask).sum(1)
    assert (lengths[1] <= lengths[0]).all() and 0.7 < lengths[1].sum() / lengths[0].sum() < 1
    np.testing.assert_array_equal(ids[:, 0], data["input_ids"][:, 0])


def test_its_loss_is_the_equation():
    x, y = np.random.default_rng(0).normal(size=(2, BATCH, 5))
    found = objective().loss(alone({"whole": jnp.float32(x), "shortened": jnp.float32(y)}), spread=2.0)
    x, y = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (x, y))
    distances = np.square(x[:, None] - y[None]).sum(2)[~np.eye(BATCH, dtype=bool)]
    assert float(found) == pytest.approx(np.log(np.mean(np.exp(-2 * distances))), rel=1e-5)
    # On several devices ids may number the words of the batch, if the encoder alone reads them.
    assert recipe(1, objectives=(INFO_NCE, Term(objective()))).reads_words
    assert not recipe(1, objectives=(INFO_NCE,)).reads_words


def test_its_config_is_checked_and_read_twice_shares_a_compilation_and_a_changed_file_does_not(tmp_path):
    first, second = (make_recipe(config_of(), 1) for _ in range(2))
    assert first == second and hash(first) == hash(second)
    file = shutil.copy(EXAMPLE, tmp_path / "own.py")
    (tmp_path / "own.py").write_text(EXAMPLE.read_text().replace("SHARE = 0.1", "SHARE = 0.2"))
    assert make_recipe(config_of(file), 1) != first
    validate(config_of())
    with pytest.raises(UserError, match=r"config\.objective\.uniformity\.spread=0\.0: must be above 0"):
        validate(config_of(objective__uniformity__spread=0.0))
    off = config_of(objective__uniformity__weight=0.0, objective__uniformity__spread=3.0)
    assert "objective.uniformity.spread=3.0" in ineffective(off)


class Scale(Objective):
    """One with parameters of its own."""

    name = "scale"
    about = "A number that grows."
    parameters = Parameters(lambda encoder, key: {"scale.value": jnp.ones(3)}, stream=0x7363616C)

    def loss(self, embedded):
        return embedded.mean(jnp.square(embedded["anchor"])[:, :3] @ embedded.params["scale.value"])


@pytest.mark.slow
def test_a_run_resumes_bit_for_bit_and_its_model_needs_the_encoder_alone(tiny_bert, corpus, tmp_path, monkeypatch):
    """With a second objective, of another package, by an entry point that is loaded if a config names it."""
    loaded, real = [], importlib.metadata.entry_points  # JAX's own are looked for by it, too
    entry = SimpleNamespace(value="other.package:Scale", load=lambda: loaded.append(1) or Scale)

    def entry_points(**given):
        return [entry] if given == {"group": "simcse_jax.objectives", "name": "scale"} else real(**given)

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    validate(default_config())
    assert not loaded
    assert default_config("scale").objective.scale.weight == 0.0 and loaded
    both = EXAMPLE.read_text().replace("default_config(Uniformity)", 'default_config(Uniformity, "scale")')
    (tmp_path / "own.py").write_text(both)
    fields = {"model.init_from": str(tiny_bert), "model.num_layers": 1, "data.train": str(corpus["txt"])}
    fields |= {"data.max_length": 16, "eval.data": str(corpus["dev"]), "train.batch_size": 8, "train.max_steps": 4}
    fields |= {"train.log_every": 1, "eval.every": 2, "parallel.devices": 1, "objective.scale.weight": 0.01}
    config = config_of(tmp_path / "own.py", **fields)
    validate(config)
    trained_and_resumed(config, tmp_path)
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["config"]["objective"]["uniformity"] == {"weight": 0.1, "spread": 2.0}
    del registry.OBJECTIVES["uniformity"], registry.OBJECTIVES["scale"]  # whose parameters the checkpoints have
    before = len(loaded)
    exporting.export(tmp_path / "run", tmp_path / "exported")
    texts = ["a cat", "the dog ran home"]
    expected = SimCSE(tmp_path / "run").encode(texts)
    np.testing.assert_allclose(SimCSE(tmp_path / "exported").encode(texts), expected, atol=1e-6)
    assert len(loaded) == before
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / "run")
    refused(call("train", *args), "belongs to another config")
    with pytest.raises(UserError, match=r"^config\.objective\.uniformity: no such objective here"):
        validate(config)


def test_classes_that_lack_a_part_and_sections_that_are_none_are_refused():
    unnamed = type("Unnamed", (Objective,), {"name": "info_nce"})
    for given, named in ((unnamed, "one of the package's own"), (int, "is not a subclass"), (Objective, "its `name`")):
        with pytest.raises(UserError, match=named):
            registry.add(given)
    for given in ("abc", 3):
        with pytest.raises(UserError, match=r"^config\.objective"):
            validate(config_dict.ConfigDict(default_config().to_dict() | {"objective": given}))
    with pytest.raises(UserError, match=r"config\.objective\.other: no such objective"):
        default_config("other")
