import collections
import functools
import re
from unittest.mock import Mock

import jax
import pytest
from support import CONFIGS
from support.costs import TINY, tiny_config

from simcse_jax.devices.flops import product_flops
from simcse_jax.models.config import EncoderConfig
from simcse_jax.runs.state import model_spec
from simcse_jax.training.costs import compile
from simcse_jax.training.setup import abstract_step, data_spec

pytestmark = pytest.mark.platforms
PRODUCTS = 3 * (6 * TINY.num_layers + 1)  # forward and backward; the last layer projects queries separately


ROUNDING = (("train.dtype", "bfloat16"), ("train.round_products", True))  # which changes no number of products


@functools.cache
def traced(*fields, columns=1, devices=8, fill=1.0):
    return compile.trace_step(abstract_step(tiny_config(**dict(fields)), TINY, columns), jax.devices()[:devices], fill)


def flops(*fields, **others):
    return product_flops(traced(*fields, **others).jaxpr)


def lowered(trace, platform="cuda"):
    return trace.lower(lowering_platforms=(platform,)).as_text()


def test_the_compiler_s_message_is_understood_and_a_gpu_s_memory_is_the_part_that_jax_takes(monkeypatch):
    late = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.95G of 15.75G hbm. Exceeded by 2.20G."
    early = "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
    early += "temporaries (55.33G) exceeds available HBM (512.5M). HLO module: jit_step."
    assert compile.memory_of_error(late) == (17.95 * 2**30, 15.75 * 2**30)
    assert compile.memory_of_error(early) == (55.33 * 2**30, 512.5 * 2**20)
    for other in ("RESOURCE_EXHAUSTED: too much vmem: 3.2M of 1.0M", "INTERNAL: hbm 3.2G of 1.0G"):
        assert compile.memory_of_error(other) is None
    assert compile.gpu_memory(100) == 75
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", ".9")
    assert compile.gpu_memory(100) == 90
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", ".5")
    assert compile.gpu_memory(100) == 50


def test_the_largest_chunk_that_fits_is_found():
    for limit, share in ((0, 0.01), (1, 0.99), (255, 0.28), (256, 0.01), (400, 0.28), (2000, 0.99)):
        fits = Mock(side_effect=lambda chunk, limit=limit: chunk <= limit)
        start = max(2048 >> k for k in range(1, 12) if 2048 >> (k + 1) < 2048 * share)
        expected = max((2048 >> k for k in range(1, 12) if 2048 >> k <= min(limit, start)), default=0)
        assert compile.largest_chunk(fits, 2048, share) == expected and fits.call_args_list[0].args == (start,)


@pytest.mark.slow
def test_the_sizes_of_the_state_of_what_is_frozen_of_a_mean_in_bfloat16_of_a_teacher_and_of_a_generator():
    """Each parameter is an argument with two moments where it trains, and alone where it does not."""

    def numbers(*fields):
        state, _, _, frozen = traced(("model.mlp", "none"), *fields, devices=1).in_avals[0]
        return [sum(x.size for x in jax.tree.leaves(part)) for part in (state.params, state.optimizer, frozen)]

    whole, moments, nothing = numbers()
    assert nothing == 0 and moments == 2 * whole + 1
    for fields in ([("model.lora.rank", 2)], [("model.freeze.layers", 1), ("model.freeze.embeddings", True)]):
        trained, moments, frozen = numbers(*fields)
        assert moments == 2 * trained + 1 < whole / 2 * 3 and frozen > whole / 3
        assert trained + frozen == whole + ("lora" in fields[0][0]) * 2 * 2 * 2 * (32 + 32)

    def size(*fields):
        state = traced(("model.mlp", "none"), *fields, devices=1).in_avals[0][0]
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))

    assert size(("train.mu_dtype", "bfloat16")) == pytest.approx(10 / 12 * size(), rel=1e-4)
    fields = {"model.mlp": "none", "model.convolutions.widths": ("1",), "model.convolutions.channels": 24}
    fields |= {"model.pooler": "avg", "objective.embedding_mse.weight": 1.0, "teacher.model": "m"}
    assert traced(*fields.items(), devices=1).in_avals[0][1]["teacher"].shape == (32, 1, 24)
    # DiffCSE: two views, a generator that is not differentiated, and a discriminator that is.
    projected = {"projector.widths": "2D,D", "projector.objectives": ("info_nce", "replaced_token_detection")}
    fields = {"model.mlp": "none", "model.generator": "x", "objective.replaced_token_detection.weight": 1.0}
    own = compile.trace_step(abstract_step(tiny_config(**projected, **fields), TINY, 1, TINY), jax.devices()[:1])
    assert 2 < product_flops(own.jaxpr).total() / flops(("model.mlp", "none"), devices=1).total() < 4
    state, _, _, frozen = own.args_info[0]
    assert "language_model.bias" in frozen and "projector.layers.0.kernel" in state.params


@pytest.mark.slow
def test_a_step_of_an_encoder_with_local_layers_and_gates_is_lowered_for_tpus_from_here():
    encoder = EncoderConfig.from_hugging_face(CONFIGS["modernbert"], "test")
    own = compile.trace_step(
        abstract_step(tiny_config(**{"model.attention_dropout": 0.0}), encoder, 1), jax.devices()[:2]
    )
    assert "encoder.final_norm.scale" in own.args_info[0][0].params and "stablehlo.cosine" in lowered(own, "tpu")


# The products of arrays in bfloat16 (attention's and dense layers'; the head's and the losses' stay float32), and the
# types of their results: gradients of parameters stay float32, and attention's are made from bfloat16 values.
ROUNDED = {"f32": 4 * TINY.num_layers + 1, "bf16": PRODUCTS - (4 * TINY.num_layers + 1)}


SLOW = (((), 1.0, {}), (ROUNDING[:1], 0.5, {"f32": PRODUCTS}))
SLOW = [pytest.param(*each, marks=pytest.mark.slow) for each in SLOW]


@pytest.mark.parametrize(("fields", "fill", "results"), [(ROUNDING, 1.0, ROUNDED), *SLOW])
def test_the_step_is_lowered_for_gpus_from_here(fields, fill, results):
    text = lowered(traced(*fields, fill=fill))
    assert "mhlo.num_partitions = 8" in text
    assert "jax.buffer_donor" in text  # the old state is given up
    for collective in ("all_gather", "reduce_scatter", "all_reduce"):
        assert f"stablehlo.{collective}" in text
    # Nothing that is a CPU's own: its library calls, and the loop it makes of threefry.
    assert "stablehlo.custom_call" not in text and "stablehlo.while" not in text
    kinds = [r"tensor<[\dx]+x?(\w+)>"] * 2
    products = re.findall(rf"dot_general .*precision = \[(\w+), \w+\] : \({', '.join(kinds)}\) -> {kinds[0]}", text)
    assert products and {precision for precision, *_ in products} == {"HIGHEST"}
    assert all(left == right for _, left, right, _ in products)  # what mixes both is as slow as float32
    assert collections.Counter(result for _, left, _, result in products if left == "bf16") == results


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_encoding_or_a_step_is_compiled_for_the_devices_at_hand(whole, monkeypatch):
    monkeypatch.delattr("jax.lax.platform_dependent")  # their platform is known, so nothing is traced for others
    if whole:
        report = compile.compile_step(abstract_step(tiny_config(), TINY, 1), "h200:here")
    else:
        report = compile.compile_encoding(model_spec(tiny_config()), TINY, (32, 16), "float32", "h200:here")
    assert (report.topology, report.chips, report.nodes) == ("h200:here", len(jax.devices()), 1)
    assert (report.batch, report.sentences) == (32, 32)
    assert report.flops and report.hbm_bytes and report.memory["arguments"] and bool(report.collectives) == whole


@pytest.mark.slow
def test_the_flops_of_a_step_and_of_encoding_are_those_of_their_layers():
    rows, tokens = 2 * 32 // 8, 16  # two views of a chip's part of the batch
    size, inner = TINY.hidden_size, TINY.intermediate_size
    layer = 2 * rows * tokens * (4 * size * size + 2 * size * inner) + 4 * rows * tokens * tokens * size
    # In the last layer, keys and values are computed for all tokens, the rest only for the first one, the embedding.
    last = 2 * rows * tokens * 2 * size * size + 2 * rows * (2 * size * size + 2 * size * inner)
    last += 4 * rows * tokens * size
    forward = (TINY.num_layers - 1) * layer + last + 2 * rows * size * size  # and the head
    loss = 2 * 4 * 32 * size  # four anchors, 32 columns
    assert flops() == {6: 3 * (forward + loss)}
    chunked = flops(("parallel.chunk_size", 2), ("train.matmul_precision", "high"))
    assert chunked == {3: 4 * forward + 3 * loss}  # chunks are encoded twice
    rows = 32 // len(jax.devices())  # of one device
    tokens, size, inner = 24, TINY.hidden_size, TINY.intermediate_size
    layer = 2 * rows * tokens * (4 * size * size + 2 * size * inner) + 4 * rows * tokens * tokens * size
    whole = TINY.num_layers * layer
    assert encoding_flops() == {6: whole}
    # As a run is scored: without the head of training, and with one that stays.
    assert encoding_flops(**{"model.mlp": "train"}) == {6: whole}
    head = 2 * rows * size * size
    assert encoding_flops(**{"model.mlp": "always"}) == {6: whole + head}
    assert encoding_flops(**{"model.pooler": "cls", "model.mlp": "none"})[6] < whole
    assert encoding_flops(**{"train.dtype": "bfloat16", "model.mlp": "always"}) == {1: whole, 6: head}


def test_a_batch_has_what_the_objective_reads_and_without_padding_places_for_its_tokens_alone():
    def shapes(columns, **fields):
        return {
            name: x.shape for name, x in compile.batch_shapes(data_spec(tiny_config(**fields)), columns, 24).items()
        }

    plain = {"input_ids": (32, 2, 16), "attention_mask": (32, 2, 16), "index": (32,)}
    one = {"objective.info_nce.weight": 0.0}
    assert shapes(2) == plain | {"text": (32, 2)} and shapes(2, **{"data.equal_texts": "negatives"}) == plain
    assert shapes(2, **one, **{"objective.softmax_nli.weight": 1.0}) == plain | {"label": (32,)}
    assert shapes(2, **one, **{"objective.cosent.weight": 1.0}) == plain | {"score": (32,)}
    mixed = shapes(3, **{"data.train": "a.txt,b.csv", "data.mixed": True})
    assert mixed["present"] == (32, 3) and mixed["input_ids"] == (32, 3, 16)
    data = data_spec(tiny_config())
    assert compile.most_tokens(data, 2, 8, 0.68, chunk_size=3) == (33, 33)  # of 3 * 16
    assert compile.most_tokens(data, 1, 8, 0.5, chunk_size=0) == (32,)
    half, whole = flops(*ROUNDING[:1], fill=0.5).total(), flops(*ROUNDING).total()
    assert 0.5 * whole < half < 0.8 * whole


def encoding_flops(**fields):
    config = tiny_config(**{"model.pooler": "avg", "model.mlp": "none"} | fields)
    traced = compile.trace_encoding(model_spec(config), TINY, (32, 24), config.train.dtype, jax.devices())
    return dict(product_flops(traced.jaxpr))
