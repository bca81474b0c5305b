import importlib.util
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from support import ROOT, call, run
from support.costs import TINY, tiny_config

from simcse_jax import aot
from simcse_jax.commands import verbs
from simcse_jax.config.fields import FIELDS, flatten
from simcse_jax.config.flags import parse
from simcse_jax.config.recipes import FOLDER, list_recipes
from simcse_jax.devices.flops import product_flops
from simcse_jax.devices.mesh import AXIS, data_mesh
from simcse_jax.devices.parts import gather
from simcse_jax.errors import UserError
from simcse_jax.models.attention import CUDA_PLUGINS
from simcse_jax.models.sentence_encoder import build
from simcse_jax.objectives.registry import OBJECTIVES, needing, trained_objectives
from simcse_jax.runs.state import model_spec
from simcse_jax.training.costs import compile, described
from simcse_jax.training.costs.described import described_devices, prepare
from simcse_jax.training.costs.program import COLLECTIVES, Program
from simcse_jax.training.costs.roofline import CHIPS
from simcse_jax.training.costs.sizes import guess_columns
from simcse_jax.training.setup import abstract_step, data_spec

pytestmark = pytest.mark.platforms

UNSUP = "--config=configs/unsup_bert.py"


MISTAKES = [
    ({"topology": ()}, "topology: name TPUs or GPUs"),
    ({"fields": ["data.trian=x"]}, "the nearest one is config.data.train"),
    ({"fields": ["model.init_from=a b"]}, "a b: no such folder"),
    ({"fields": "data.max_length=513"}, "the model takes 512 tokens"),
    ({"scaling": "strong", "batch_per_chip": 8}, "scaling strong: leave batch_per_chip out"),
    ({"fill": 0}, "fill 0: Must be > 0"),
    ({"plan": "sentences=1,tokens=33"}, "plan tokens=33: sentences are cut at"),
    ({"plan": "sentences=1", "topology": ["h200:1", "h200:2"]}, "plan: is for one topology"),
]


def test_mistakes_name_the_keyword_and_fields_of_the_command_line_are_those_of_a_program(monkeypatch):
    monkeypatch.chdir(ROOT)
    for options, message in MISTAKES:
        with pytest.raises(UserError) as error:
            aot("configs/unsup_bert.py", **{"topology": "v5e:2x4"} | options)
        assert message in str(error.value), options
    given = ["--model=m", "--config.train.seed", "3", "--topology", "v5e:1x1,v5e:2x4", "--config.eval.tasks=a,b", UNSUP]
    given += ["--config.train.unpad", "--encode"]
    _, bound = verbs.parse("aot", given)
    assert bound.arguments["fields"] == ["model.init_from=m", "train.seed=3", "eval.tasks=a,b", "train.unpad=true"]
    assert bound.arguments["topology"] == ["v5e:1x1", "v5e:2x4"]


FEW = {"data.max_length": 16, "train.batch_size": 16}


def costs(run, model, folder, *arguments):
    fields = [f"--config.{name}={value}" for name, value in ({"model.init_from": model} | FEW).items()]
    done = run("aot", UNSUP, *fields, *arguments, f"--output={folder / 'figures.json'}")
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "figures.json").read_text())


def test_the_command_computes_the_costs_of_a_step(tiny_bert, tmp_path, monkeypatch):
    """The compiler of this machine stands in for that of the chips."""
    for module in (described, compile):
        monkeypatch.setattr(module, "described_devices", lambda topology: jax.devices()[:2])
    monkeypatch.setattr(described, "prepare", lambda *_: None)
    printed, (figures,) = costs(call, tiny_bert, tmp_path, "--topology=v5e:2x2", "--config.model.num_layers=1")
    assert "a bound, not a measurement" in printed
    config = tiny_config(**FEW, **{"model.num_layers": 1})
    traced = compile.trace_step(abstract_step(config, TINY.keep_layers(1), 1), jax.devices()[:2])
    assert figures["flops"] == product_flops(traced.jaxpr).total()
    assert (figures["chips"], figures["sentences"]) == (2, 16)


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed (pip install libtpu)")
@pytest.mark.parametrize("topology", ["v5e:2x2", "v5e:2x4", "v5e:4x8"])
def test_xla_sums_a_kernel_s_gradient_where_its_parts_are_where_a_ring_goes_through_all_chips(topology):
    prepare()
    mesh = data_mesh(described_devices(topology))
    shape, split = (3072, 768), P(AXIS)

    def loss(part):
        return jnp.sum(jnp.tanh(gather(part, split, jnp.dtype(jnp.bfloat16))))

    function = jax.jit(jax.shard_map(jax.grad(loss), mesh=mesh, in_specs=split, out_specs=split))
    part = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, split))
    found = Program(function.lower(part).compile().as_text()).collectives()
    sent = {kind: sum(each.bytes_sent for each in found if each.kind == kind) for kind in COLLECTIVES}
    others = 3072 * 768 * (1 - 1 / mesh.size)  # of which no chip is sent anything twice
    assert (sent["all-gather"], sent["reduce-scatter"], sent["all-reduce"]) == (2 * others, 4 * others, 0)


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed (pip install libtpu)")
def test_a_tiny_model_s_step_compiles_for_a_tpu(tiny_bert: Path, tmp_path: Path):
    arguments = ("--topology=v5e:2x2", "--config.parallel.chunk_size=2")
    printed, (figures,) = costs(run, tiny_bert, tmp_path, *arguments)
    assert "a bound, not a measurement" in printed
    traced = compile.trace_step(
        abstract_step(tiny_config(**FEW, **{"parallel.chunk_size": 2}), TINY, 1), jax.devices()[:4]
    )
    assert figures["flops"] == product_flops(traced.jaxpr).total()
    parameters = sum(value.size for value in build(TINY, with_head=True)[1].values())
    exchanged = {each["kind"]: each["bytes"] for each in figures["collectives"]}
    reduced = exchanged.get("all-reduce", 0) + exchanged["reduce-scatter"]
    assert 4 * parameters <= reduced < 1.2 * 4 * parameters  # the gradient; parts of small arrays are padded
    assert 0.95 * 4 * parameters < exchanged["all-gather"] < 1.1 * 4 * parameters  # the parameters, but for odd ones
    assert {each["devices"] for each in figures["collectives"]} == {4}
    # A chip's part of the state is read and written once at least: parameters and two moments.
    assert figures["hbm_bytes"] > 2 * 3 * parameters
    assert 3 * parameters < figures["memory"]["arguments"] < CHIPS["v5e"].hbm
    assert figures["chips"] == 4 and figures["sentences"] == 16


there = any(importlib.util.find_spec(name) for name in CUDA_PLUGINS)
needs_cuda = pytest.mark.skipif(not there, reason='no CUDA plugin (pip install "jax[cuda13]")')


@needs_cuda
def test_a_tiny_model_s_step_compiles_for_gpus_of_two_nodes(tiny_bert: Path, tmp_path: Path):
    arguments = ("--topology=h200:2x2", "--config.train.dtype=bfloat16")
    printed, (figures,) = costs(run, tiny_bert, tmp_path, *arguments)
    assert "a bound, not a measurement" in printed
    parameters = sum(value.size for value in build(TINY, with_head=True)[1].values())
    reduced = sum(each["bytes"] for each in figures["collectives"] if each["kind"] == "all-reduce")
    assert 4 * parameters <= reduced < 1.05 * 4 * parameters
    assert {each["devices"] for each in figures["collectives"]} == {4}
    assert figures["bytes_sent"] == pytest.approx(2 * figures["bytes_between_nodes"], rel=0.01)
    assert figures["hbm_bytes"] > 2 * 3 * 4 * parameters


@needs_cuda
def test_a_plan_compiles_training_and_encoding(tiny_bert: Path, tmp_path: Path):
    printed, figures = costs(run, tiny_bert, tmp_path, "--topology=h100:2", "--plan=sentences=1e9,tokens=11")
    config = tiny_config(**FEW)
    batch = config.train.batch_size
    traced = compile.trace_encoding(
        model_spec(config), TINY, (batch, 12), "float32", jax.devices()[:1]
    )  # one of two GPUs
    assert figures["encoding"]["flops"] == product_flops(traced.jaxpr).total() // 2
    assert "read_rate" in printed and "exact search: a GPU holds" in printed


@needs_cuda
def test_a_step_beyond_a_gpu_s_memory_is_refused(monkeypatch):
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "1e-5")
    with pytest.raises(compile.OutOfMemory) as error:
        compile.compile_step(abstract_step(tiny_config(), TINY, 1), "h100:1")
    assert error.value.needed > error.value.available == pytest.approx(CHIPS["h100"].hbm * 1e-5)


@needs_cuda
def test_every_recipe_and_objective_compiles_for_gpus():
    """Each with a tiny model of two layers; variants that differ in numbers or sizes alone compile once."""
    seen, objectives = set(), set()
    for recipe in list_recipes(FOLDER):
        for variant in recipe.variants or ("",):
            config, _ = parse([f"--config={recipe.file}{':' * bool(variant)}{variant}"], needs_workdir=False)
            config.update_from_flattened_dict({"data.max_length": 16, "train.batch_size": 16})
            columns, fields = guess_columns(data_spec(config)), flatten(config)
            kind = repr((columns, [fields[name] for name in fields if is_compiled(name)]))
            objectives |= set(trained_objectives(config.objective))
            if kind not in seen:
                generator = TINY if needing(config.objective, "replaces_tokens") else None
                report = compile.compile_step(abstract_step(config, TINY, columns, generator), "h200:2")
                assert report.flops and report.hbm_bytes, (recipe.file, variant)
            seen.add(kind)
    assert objectives == set(OBJECTIVES)


def is_compiled(name: str) -> bool:
    """Whether the step of a tiny model depends on a field (on those of data by the number of columns)."""
    section, _, last = name.partition(".")
    return (
        section in ("model", "objective", "projector", "train", "views")
        and not FIELDS[name].of_step
        and last not in ("init_from", "generator", "epochs", "max_steps", "log_every", "patience")
    )
