import collections
import re

import jax
import pytest
from support import CONFIGS
from support.costs import TINY, tiny_config

from simcse_jax.devices.flops import product_flops
from simcse_jax.errors import UserError
from simcse_jax.models.config import EncoderConfig
from simcse_jax.training.costs import compile

pytestmark = pytest.mark.platforms


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


def test_a_step_with_a_generator_takes_its_parameters():
    """DiffCSE: two views, a generator that is not differentiated, and a discriminator that is."""
    projected = {"projector.widths": "2D,D", "projector.objectives": ("info_nce", "replaced_token_detection")}
    fields = {"model.mlp": "none", "model.generator": "x", "objective.replaced_token_detection.weight": 1.0}
    devices = jax.devices()[:2]
    plain = compile.trace_step(tiny_config(**{"model.mlp": "none"}), TINY, 1, devices)
    traced = compile.trace_step(tiny_config(**projected, **fields), TINY, 1, devices, TINY)
    assert 2 < product_flops(traced.jaxpr).total() / product_flops(plain.jaxpr).total() < 4
    state, _, _, frozen = traced.args_info[0]
    assert "language_model.bias" in frozen and "projector.layers.0.kernel" in state.params


def test_a_step_with_lora_has_no_gradient_and_no_optimizer_of_what_is_frozen():
    """Each parameter is an argument with two moments where it trains, and alone where it does not."""

    def numbers(**fields):
        config = tiny_config(**{f"model.{name.replace('__', '.')}": value for name, value in fields.items()})
        state, _, _, frozen = compile.trace_step(config, TINY, 1, jax.devices()[:1]).in_avals[0]
        return [sum(x.size for x in jax.tree.leaves(part)) for part in (state.params, state.optimizer, frozen)]

    whole, moments, nothing = numbers(mlp="none")
    assert nothing == 0 and moments == 2 * whole + 1
    for fields in ({"lora__rank": 2}, {"freeze__layers": 1, "freeze__embeddings": True}):
        trained, moments, frozen = numbers(mlp="none", **fields)
        assert moments == 2 * trained + 1 < whole / 2 * 3 and frozen > whole / 3
        assert trained + frozen == whole + ("lora__rank" in fields) * 2 * 2 * 2 * (32 + 32)


def test_a_mean_in_bfloat16_makes_the_state_smaller_by_a_sixth():
    def size(**fields):
        state = compile.trace_step(tiny_config(**fields), TINY, 1, jax.devices()[:1]).in_avals[0][0]
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))

    assert size(**{"train.mu_dtype": "bfloat16"}) == pytest.approx(10 / 12 * size(), rel=1e-4)


def test_a_teacher_has_embeddings_of_the_size_of_those_that_convolutions_make():
    fields = {"model.mlp": "none", "model.convolutions.widths": ("1",), "model.convolutions.channels": 24}
    fields |= {"model.pooler": "avg", "objective.embedding_mse.weight": 1.0, "teacher.model": "m"}
    batch = compile.trace_step(tiny_config(**fields), TINY, 1, jax.devices()[:1]).in_avals[0][1]
    assert batch["teacher"].shape[-1] == 24


def test_a_step_of_an_encoder_with_local_layers_and_gates_is_lowered_for_tpus_from_here():
    encoder = EncoderConfig.from_hugging_face(CONFIGS["modernbert"], "test")
    traced = compile.trace_step(tiny_config(**{"model.attention_dropout": 0.0}), encoder, 1, jax.devices()[:2])
    assert "encoder.final_norm.scale" in traced.args_info[0][0].params
    assert "stablehlo.cosine" in traced.lower(lowering_platforms=("tpu",)).as_text()


def test_a_step_without_padding_has_places_for_its_tokens_alone():
    devices, config = jax.devices(), tiny_config(**{"parallel.chunk_size": 3})
    assert compile.most_tokens(config, 2, 8, 0.68) == (33, 33)  # of 3 * 16
    assert compile.most_tokens(tiny_config(), 1, 8, 0.5) == (32,)
    whole, half = (
        product_flops(compile.trace_step(tiny_config(), TINY, 1, devices, fill=fill).jaxpr).total() for fill in (1, 0.5)
    )
    assert 0.5 * whole < half < 0.8 * whole


def test_a_gpu_s_memory_is_the_part_that_jax_takes(monkeypatch):
    assert compile.gpu_memory(100) == 75
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", ".9")
    assert compile.gpu_memory(100) == 90
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", ".5")
    with pytest.raises(UserError, match="XLA_CLIENT_MEM_FRACTION and XLA_PYTHON_CLIENT_MEM_FRACTION are both set"):
        compile.gpu_memory(100)
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION")
    assert compile.gpu_memory(100) == 50
    for wrong in ("all", "nan", "0", "-1", "inf"):
        monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", wrong)
        with pytest.raises(UserError, match=f"XLA_CLIENT_MEM_FRACTION={wrong}: must be a number above 0"):
            compile.gpu_memory(100)


@pytest.mark.parametrize(("dtype", "most_tokens"), [("float32", ()), ("bfloat16", ()), ("bfloat16", (40,))])
def test_the_step_is_lowered_for_gpus_from_here(dtype, most_tokens, monkeypatch):
    make_recipe = compile.make_recipe
    monkeypatch.setattr(compile, "make_recipe", lambda *args: make_recipe(*args)._replace(most_tokens=most_tokens))
    traced = compile.trace_step(tiny_config(**{"train.dtype": dtype}), TINY, 1, jax.devices())
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "mhlo.num_partitions = 8" in text
    assert "jax.buffer_donor" in text  # the old state is given up
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
        assert halved == 3 * (6 * TINY.num_layers + 1)  # the last layer projects queries separately


def test_a_gpu_s_step_writes_products_as_bfloat16_if_the_config_says_so():
    def written(rounds):
        config = tiny_config(**{"train.dtype": "bfloat16", "train.round_products": rounds})
        text = compile.trace_step(config, TINY, 1, jax.devices()).lower(lowering_platforms=("cuda",)).as_text()
        return collections.Counter(re.findall(r"dot_general .*xbf16>\) -> tensor<[\dx]+x(\w+)>", text))

    products = 3 * (6 * TINY.num_layers + 1)
    assert written(False) == {"f32": products}
    parameters = 4 * TINY.num_layers + 1  # their gradients stay float32, and attention's are made from bfloat16 values
    assert written(True) == {"f32": parameters, "bf16": products - parameters}


def test_a_step_is_compiled_for_the_devices_at_hand(monkeypatch):
    monkeypatch.delattr("jax.lax.platform_dependent")  # their platform is known, so nothing is traced for others
    report = compile.compile_step(tiny_config(), TINY, 1, "h200:here")
    assert (report.topology, report.chips, report.nodes) == ("h200:here", len(jax.devices()), 1)
    assert report.flops and report.hbm_bytes and report.memory["arguments"]


def test_the_step_s_flops_are_those_of_its_layers():
    rows, tokens = 2 * 32 // 8, 16  # two views of a chip's part of the batch
    size, inner = TINY.hidden_size, TINY.intermediate_size
    layer = 2 * rows * tokens * (4 * size * size + 2 * size * inner) + 4 * rows * tokens * tokens * size
    # In the last layer, keys and values are computed for all tokens, the rest only for the first one, the embedding.
    last = (
        2 * rows * tokens * 2 * size * size + 2 * rows * (2 * size * size + 2 * size * inner) + 4 * rows * tokens * size
    )
    forward = (TINY.num_layers - 1) * layer + last + 2 * rows * size * size  # and the head
    loss = 2 * 4 * 32 * size  # four anchors, 32 columns
    whole = product_flops(compile.trace_step(tiny_config(), TINY, 1, jax.devices()).jaxpr)
    assert whole == {6: 3 * (forward + loss)}
    chunked = tiny_config(**{"parallel.chunk_size": 2, "train.matmul_precision": "high"})
    # Chunks are encoded twice.
    again = product_flops(compile.trace_step(chunked, TINY, 1, jax.devices()).jaxpr)
    assert again == {3: 4 * forward + 3 * loss}


def test_steps_of_other_objectives_are_traced():
    plain = product_flops(compile.trace_step(tiny_config(), TINY, 2, jax.devices()).jaxpr).total()
    fields = {"objective.off_dropout.weight": 1.0, "objective.dimension_wise.weight": 0.1, "objective.mlm.weight": 0.1}
    fields |= {"objective.info_nce.weight": 0.0}
    both = product_flops(compile.trace_step(tiny_config(**fields), TINY, 2, jax.devices()).jaxpr).total()
    assert both > 2 * plain  # the pairs once more without masks, and once more with tokens masked
    labelled = tiny_config(**{"objective.info_nce.weight": 0.0, "objective.softmax_nli.weight": 1.0})
    traced = compile.trace_step(labelled, TINY, 2, jax.devices())
    assert "label" in str(traced.in_tree)
    graded = tiny_config(**{"objective.info_nce.weight": 0.0, "objective.cosent.weight": 1.0})
    assert "score" in str(compile.trace_step(graded, TINY, 2, jax.devices()).in_tree)
    mixed = compile.trace_step(tiny_config(**{"data.train": "a.txt,b.csv", "data.mixed": True}), TINY, 3, jax.devices())
    assert "present" in str(mixed.in_tree)


def encoding_flops(**fields):
    config = tiny_config(**{"model.pooler": "avg", "model.mlp": "none", "train.batch_size": 32} | fields)
    return dict(product_flops(compile.trace_encoding(config, TINY, 24, jax.devices()).jaxpr))


def test_encoding_computes_each_layer_once():
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
    # Only the head, of float32, is not rounded.
    assert encoding_flops(**{"train.dtype": "bfloat16", "model.mlp": "always"}) == {1: whole, 6: head}
