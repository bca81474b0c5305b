import importlib.util
import json
import re
import sys
from pathlib import Path

import jax
import pytest
from support import CONFIGS, ROOT, run

from simcse_jax.aot import choose_batch, guess_columns, main
from simcse_jax.config.fields import default_config
from simcse_jax.costs import compile
from simcse_jax.costs.program import Collective, product_flops
from simcse_jax.costs.roofline import CHIPS, Report, describe, table
from simcse_jax.errors import UserError
from simcse_jax.huggingface.published import PUBLISHED, encoder_config
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.sentence_encoder import build

TINY = EncoderConfig.from_hugging_face(CONFIGS["bert"], "test")
UNSUP = "--config=configs/unsup_bert.py"


def config(**changes):
    made = default_config()
    made.update_from_flattened_dict({"data.max_length": 16, "train.batch_size": 32} | changes)
    return made


def report(**changes):
    fields = {
        "topology": "v5e:2x4",
        "chips": 8,
        "batch": 64,
        "sentences": 192,
        "compile_seconds": 90.0,
        "memory": {"arguments": 2**30, "temporaries": 2**29},
        "passes": {6: 197_000_000_000, 1: 394_000_000_000},
        "hbm_bytes": 819_000_000,
        "collectives": [Collective("all-reduce", 8, 3, 800_000_000), Collective("all-gather", 8, 1, 80_000_000)],
    }
    return Report(**fields | changes)


def test_the_roofline_by_hand():
    full = report()
    # (6 * 0.197 + 0.394) T / 197 T/s; 0.819 G / 819 G/s; (2 * 7/8 * 0.8 + 7/8 * 0.08) G / 200 G/s
    assert full.times == pytest.approx({"compute": 0.008, "HBM": 0.001, "links": 0.00735})
    assert (full.bound, full.seconds) == ("compute", pytest.approx(0.008))
    assert full.sentences_per_second == pytest.approx(24_000)
    assert full.share_of_peak == pytest.approx(0.591 / 0.008 / 197)
    fast = report(passes={1: 197_000_000_000})
    assert (fast.bound, fast.sentences_per_second) == ("links", pytest.approx(192 / 0.00735))
    assert report(hbm_bytes=81_900_000_000).bound == "HBM"
    assert "1.50 of 16 GiB: arguments 1.00, temporaries 0.50" in describe(full)
    assert "bound, not a measurement" in describe(full)
    assert json.loads(json.dumps(full.to_json()))["seconds"] == pytest.approx(0.008)


def test_the_table_compares_with_its_first_row():
    second = report(topology="v5e:4x4", chips=16, batch=128, sentences=384, passes={1: 3_152_000_000_000})
    _, *rows, _ = table([report(), second]).splitlines()
    assert [" ".join(row.split()) for row in rows] == [
        "v5e:2x4 8 64 1.50 591.0 1470.0 8.00 compute 24,000 100.0%",
        "v5e:4x4 16 128 1.50 3152.0 1470.0 16.00 compute 24,000 50.0%",
    ]


def test_the_compiler_s_message_is_understood():
    late = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.95G of 15.75G hbm. Exceeded by 2.20G."
    early = (
        "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
        "temporaries (55.33G) exceeds available HBM (512.5M). HLO module: jit_step."
    )
    assert compile.memory_of_error(late) == (17.95 * 2**30, 15.75 * 2**30)
    assert compile.memory_of_error(early) == (55.33 * 2**30, 512.5 * 2**20)
    assert compile.memory_of_error("RESOURCE_EXHAUSTED: too much vmem: 3.2M of 1.0M") is None
    assert compile.memory_of_error("INTERNAL: hbm 3.2G of 1.0G") is None


@pytest.mark.parametrize("limit", [0, 1, 255, 256, 400, 2000])
@pytest.mark.parametrize("share", [0.01, 0.28, 0.99])
def test_the_largest_chunk_that_fits_is_found(limit, share):
    tried = []

    def fits(chunk):
        tried.append(chunk)
        return chunk <= limit

    found = compile.largest_chunk(fits, 2048, share)
    start = max(2048 >> k for k in range(1, 12) if 2048 >> (k + 1) < 2048 * share)
    assert found == max((2048 >> k for k in range(1, 12) if 2048 >> k <= min(limit, start)), default=0)
    assert tried[0] == start


def test_the_batch_is_that_of_the_first_topology_or_given_a_chip():
    assert choose_batch(config(**{"train.batch_size": 64}), None, 256, 8) == 2048
    assert choose_batch(config(), 5, 256, 8) == 1280
    with pytest.raises(UserError, match="batch_size=63 does not divide by 8 devices; the nearest are 56 and 64"):
        choose_batch(config(**{"train.batch_size": 63}), None, 8, 8)
    with pytest.raises(UserError, match=r"the nearest are 8$"):
        choose_batch(config(**{"train.batch_size": 6}), None, 8, 8)


def test_other_shapes_are_read_from_their_config(tiny_folder):
    assert encoder_config(str(tiny_folder)) == EncoderConfig.from_hugging_face(CONFIGS[tiny_folder.name], "test")


def test_published_shapes_are_known():
    _, params = build(PUBLISHED["bert-base-uncased"], with_head=False)
    # 109,482,240 of BERT-base, less its pooler.
    assert sum(value.size for value in params.values()) == 109_482_240 - 768 * 769
    _, params = build(PUBLISHED["roberta-large"], with_head=False)
    assert sum(value.size for value in params.values()) == 355_359_744 - 1024 * 1025
    _, params = build(PUBLISHED["microsoft/mpnet-base"], with_head=False)
    assert sum(value.size for value in params.values()) == 109_486_464 - 768 * 769
    assert encoder_config("google-bert/bert-large-cased", 3).num_layers == 3
    with pytest.raises(UserError, match=r"gpt2: no such folder, .* bert-base-uncased, .*all-mpnet-base-v2$"):
        encoder_config("gpt2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "one of the arguments --topology --topologies is required"),
        (["--topology=v5e:2x4", "--config.data.trian=x"], "the nearest one is --config.data.train"),
        (["--topology=v5e:2x4", "--outptu=x"], "outptu"),
        (["--topology=v5e:2x4", "--config.model.init_from=gpt2"], "of hub models only these shapes are known"),
        (["--topology=v5e:2x4", "--config.model.num_layers=13"], "the model has 12 layers"),
        (["--topology=v5e:2x4", "--config.data.max_length=513"], "the model takes 512 tokens"),
        (["--topology=v5e:2x4", "--batch-per-chip=0"], "--batch-per-chip 0: must be 1 or more"),
        (["--topology=v5e:2x4", "--output=no/such.json"], "--output no/such.json: must be a file in a folder"),
    ],
)
def test_mistakes_in_the_arguments(arguments, message, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["aot", UNSUP, *arguments])
    with pytest.raises(UserError) as error:
        main()
    assert message in str(error.value)


def test_an_unknown_topology_is_one_line():
    done = run("aot", UNSUP, "--topology=v9:2x2")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith(
        "error: --topology v9:2x2: must be one of v4, v5e, v5p, v6e and a shape, e.g. v5e:2x4"
    )


def test_without_libtpu_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"`pip install libtpu`.*JAX_PLATFORMS=cpu"):
        compile.described_devices("v5e:2x4")


@pytest.mark.parametrize(("dtype", "most_tokens"), [("float32", ()), ("bfloat16", ()), ("bfloat16", (40,))])
def test_the_step_is_lowered_for_gpus_from_here(dtype, most_tokens, monkeypatch):
    make_recipe = compile.make_recipe
    monkeypatch.setattr(compile, "make_recipe", lambda *args: make_recipe(*args)._replace(most_tokens=most_tokens))
    traced = compile.trace_step(config(**{"train.dtype": dtype}), TINY, 1, jax.devices())
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "mhlo.num_partitions = 8" in text
    assert "tf.aliasing_output" in text  # the old state is given up
    for collective in ("all_gather", "reduce_scatter", "all_reduce"):
        assert f"stablehlo.{collective}" in text
    # Nothing that is a CPU's own: its library calls, and the loop it makes of threefry.
    assert "stablehlo.custom_call" not in text and "stablehlo.while" not in text
    products = re.findall(
        r"dot_general .*precision = \[(\w+), \w+\] : \(tensor<[\dx]+(\w+)>, tensor<[\dx]+(\w+)>", text
    )
    assert {precision for precision, *_ in products} == {"HIGHEST"}
    assert all(left == right for _, left, right in products)  # what mixes both is as slow as float32
    halved = sum(left == "bf16" for _, left, _ in products)
    if dtype == "float32":
        assert halved == 0 < len(products)
    else:  # those of attention and dense layers, forward and backward; the head's and the losses' stay float32
        assert halved == 3 * (6 * TINY.num_layers + 1)  # the last layer projects queries apart


def test_the_step_s_flops_are_those_of_its_layers():
    rows, tokens = 2 * 32 // 8, 16  # two views of a chip's part of the batch
    size, inner = TINY.hidden_size, TINY.intermediate_size
    layer = 2 * rows * tokens * (4 * size * size + 2 * size * inner) + 4 * rows * tokens * tokens * size
    # Of the last layer keys and values are of all tokens; all else is of the first ones, which are the embeddings.
    last = (
        2 * rows * tokens * 2 * size * size + 2 * rows * (2 * size * size + 2 * size * inner) + 4 * rows * tokens * size
    )
    forward = (TINY.num_layers - 1) * layer + last + 2 * rows * size * size  # and the head
    loss = 2 * 4 * 32 * size  # four anchors, 32 columns
    whole = product_flops(compile.trace_step(config(), TINY, 1, jax.devices()).jaxpr)
    assert whole == {6: 3 * (forward + loss)}
    chunked = config(**{"parallel.chunk_size": 2, "train.matmul_precision": "high"})
    # Chunks are encoded twice.
    again = product_flops(compile.trace_step(chunked, TINY, 1, jax.devices()).jaxpr)
    assert again == {3: 4 * forward + 3 * loss}


@pytest.mark.parametrize(
    ("fields", "columns"),
    [
        ({"data.train": "wiki.txt"}, 1),
        ({"data.train": "nli.csv"}, 3),
        ({"data.train": "wiki.txt", "data.augment.name": "crop"}, 2),
        ({"data.train": "books.txt", "data.positives": "next_sentence"}, 2),
        ({"data.train": "nli.csv", "data.positives": "entailment"}, 2),
        ({"data.train": "nli.csv", "objective.softmax_nli.weight": 1.0}, 2),
        ({"data.train": "nli.csv", "data.columns.anchor": "a", "data.columns.positive": "b"}, 2),
    ],
)
def test_the_columns_that_a_config_lets_expect(fields, columns):
    assert guess_columns(config(**fields)) == columns


def test_steps_of_other_objectives_are_traced():
    plain = product_flops(compile.trace_step(config(), TINY, 2, jax.devices()).jaxpr).total()
    fields = {"objective.off_dropout.weight": 1.0, "objective.dimension_wise.weight": 0.1, "objective.mlm.weight": 0.1}
    fields |= {"objective.info_nce.weight": 0.0}
    both = product_flops(compile.trace_step(config(**fields), TINY, 2, jax.devices()).jaxpr).total()
    assert both > 2 * plain  # the pairs once more without masks, and once more with tokens masked
    labelled = config(**{"objective.info_nce.weight": 0.0, "objective.softmax_nli.weight": 1.0})
    traced = compile.trace_step(labelled, TINY, 2, jax.devices())
    assert "label" in str(traced.in_tree)


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed (pip install libtpu)")
def test_a_tiny_model_s_step_compiles_for_a_tpu(tiny_bert: Path, tmp_path: Path):
    fields = {"model.init_from": tiny_bert, "data.max_length": 16, "train.batch_size": 16, "parallel.chunk_size": 2}
    arguments = [f"--config.{name}={value}" for name, value in fields.items()]
    done = run("aot", UNSUP, "--topology=v5e:2x2", *arguments, f"--output={tmp_path / 'figures.json'}")
    assert done.returncode == 0, done.stderr
    assert "a bound, not a measurement" in done.stdout
    (figures,) = json.loads((tmp_path / "figures.json").read_text())
    traced = compile.trace_step(config(**fields | {"model.init_from": ""}), TINY, 1, jax.devices()[:4])
    assert figures["flops"] == product_flops(traced.jaxpr).total()
    parameters = sum(value.size for value in build(TINY, with_head=True)[1].values())
    reduced = sum(each["bytes"] for each in figures["collectives"] if each["kind"] == "all-reduce")
    assert 4 * parameters <= reduced < 1.05 * 4 * parameters  # the gradient, and some small things
    assert {each["devices"] for each in figures["collectives"]} == {4}
    # The state is read and written once at least: parameters and two moments.
    assert figures["hbm_bytes"] > 2 * 3 * 4 * parameters
    assert 3 * 4 * parameters < figures["memory"]["arguments"] < CHIPS["v5e"].hbm
    assert figures["chips"] == 4 and figures["sentences"] == 16
