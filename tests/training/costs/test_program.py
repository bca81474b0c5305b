import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from simcse_jax.devices.mesh import AXIS, Way, data_mesh
from simcse_jax.devices.parts import gather
from simcse_jax.training.costs.program import Collective, Consumer, Program, axes_of, first_group

X, W = jnp.ones((64, 32)), jnp.ones((32, 32))


def read(function, *args):
    return Program(jax.jit(function).lower(*args).compile().as_text())


def repeated(times):
    return lambda x, w: jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, None, length=times)[0]


def test_without_loops_the_bytes_are_those_of_xla_s_cost_analysis():
    for function in (
        lambda x, w: jnp.tanh(x @ w).sum(),
        lambda x, w: x[3:10] * 2 + x[20:27],
        lambda x, w: jax.nn.softmax(x @ w),
        lambda x, w: jax.lax.dynamic_update_slice(x, w[:2], (w[0, 0].astype(int), 0)),
        lambda x, w: jax.grad(lambda w: jnp.sum(jax.nn.softmax(jnp.tanh(x @ w) @ w.T)[:, 0]))(w),
    ):
        compiled = jax.jit(function).lower(X, W).compile()
        program = Program(compiled.as_text())
        assert program.bytes_accessed(on_chip=True) == compiled.cost_analysis()["bytes accessed"]
        assert program.bytes_accessed() == program.bytes_accessed(on_chip=True)  # a CPU's memory is all of one kind


def test_bytes_of_a_loop_are_multiplied():
    once, five, ten = (read(repeated(times), X, W).bytes_accessed() for times in (2, 5, 10))
    # A turn: x and w in and x out of the product, x in and out of tanh, the counter twice (4 bytes and their sum).
    turn = 4 * (4 * X.size + W.size)
    assert (ten - five) / 5 == pytest.approx((five - once) / 3) == pytest.approx(turn, rel=0.01)


def test_a_kernel_of_a_tpu_counts_by_its_own_account():
    text = """HloModule m
ENTRY main (x: f32[64,32]) -> f32[64,32] {
  %x = f32[64,32]{1,0} parameter(0)
  ROOT %y = f32[64,32]{1,0} custom-call(%x), custom_call_target="tpu_custom_call", backend_config=CONFIG
}"""

    def with_account(of_bytes):
        config = f'{{"custom_call_config":{{"cost_estimate":{{"flops":"7","bytes_accessed":"{of_bytes}"}}}}}}'
        return Program(text.replace("CONFIG", config)).bytes_accessed()

    assert with_account(123456) == 123456
    assert with_account(0) == 2 * 64 * 32 * 4  # it gives none


def test_a_gathered_table_counts_by_its_rows():
    table, rows = jnp.ones((100_000, 8)), jnp.arange(6)
    assert read(lambda table, rows: jnp.tanh(table[rows]), table, rows).bytes_accessed() < 2000


def test_of_two_branches_the_one_with_more_traffic_counts():
    def branches(*functions):
        function = lambda x, w: jax.lax.cond(x[0, 0] > 0, *functions, x, w)  # noqa: E731
        return read(function, X, W).bytes_accessed()

    small, large = (lambda x, w: x @ w), (lambda x, w: jnp.tanh(x @ w) @ w)
    assert branches(small, large) == branches(large, small) == branches(large, large) > branches(small, small)


def test_collectives_are_found_and_multiplied():
    mesh = data_mesh(jax.devices())

    def body(x, w):  # x: (8, 32) on each of 8 devices
        def turn(x, _):
            everything = jax.lax.all_gather(x, AXIS, tiled=True)  # 64 * 32 * 4 bytes
            return jax.lax.psum_scatter(jnp.tanh(everything @ w), AXIS, tiled=True), None

        x, _ = jax.lax.scan(turn, x, None, length=3)
        return jax.lax.psum(jnp.sum(x, axis=0), AXIS)  # 32 * 4 bytes

    function = jax.shard_map(body, mesh=mesh, in_specs=(P(AXIS), P()), out_specs=P())
    assert read(function, X, W).collectives() == [
        Collective("all-gather", 8, 3, 3 * 8192),
        Collective("all-reduce", 8, 1, 128),
        Collective("reduce-scatter", 8, 3, 3 * 8192),
    ]


def test_collectives_are_told_apart_by_the_axes_of_a_torus():
    """A sum over the rows and then the columns of 2 × 4 devices, as `devices.parts` makes it."""

    def loss(part):  # (8, 32) on each device
        return jnp.sum(jnp.tanh(gather(part, P(AXIS), jnp.dtype(jnp.float32), Way((2, 4), (1, 0)))))

    function = jax.shard_map(jax.grad(loss), mesh=data_mesh(jax.devices()), in_specs=P(AXIS), out_specs=P(AXIS))
    program = read(function, X)
    whole, quarter = 4 * 64 * 32, 64 * 32
    assert program.collectives(list(np.ndindex(2, 4, 1))) == [
        Collective("all-gather", 2, 1, quarter, (0,)),
        Collective("all-gather", 4, 1, whole, (1,)),
        Collective("reduce-scatter", 2, 1, quarter, (0,)),
        Collective("reduce-scatter", 4, 1, whole, (1,)),
    ]
    assert program.collectives()[0] == Collective("all-gather", 2, 1, quarter)


def test_the_bytes_that_a_ring_sends_and_nodes_after_their_devices():
    sent = {kind: Collective(kind, 4, 1, 1000).bytes_sent for kind in ("all-reduce", "all-gather", "reduce-scatter")}
    assert sent == {"all-reduce": 1500, "all-gather": 750, "reduce-scatter": 750}
    assert Collective("collective-permute", 4, 1, 1000).bytes_sent == 1000
    assert Collective("all-reduce", 1, 1, 1000).bytes_sent == 0
    for kind, ways in (("all-reduce", 2), ("all-gather", 1)):
        exchange = Collective(kind, 16, 1, 1600)  # over 2 nodes with 8 devices each
        assert exchange.sent_inside(8) == ways * 1600 * 7 / 8
        assert exchange.sent_outside(8) == ways * 200 / 2
        assert exchange.sent_outside(16) == 0 and exchange.sent_inside(16) == exchange.bytes_sent
    # Nothing of an all-to-all is the same on two devices: half of it goes to the other node.
    assert Collective("all-to-all", 16, 1, 1600).sent_outside(8) == 800


TPU_PROGRAM = """\
HloModule jit_f, is_scheduled=true, num_partitions=8

%fused (p.0: f32[100,32], p.1: s32[]) -> f32[10,32] {
  %p.0 = f32[100,32]{1,0:T(8,128)} parameter(0)
  %p.1 = s32[]{:T(128)} parameter(1)
  %zero = s32[] constant(0)
  %rows = f32[10,32]{1,0:T(8,128)} dynamic-slice(%p.0, %p.1, %zero), dynamic_slice_sizes={10,32}
  ROOT %tanh = f32[10,32]{1,0:T(8,128)S(1)} tanh(%rows)
}

%body (state: (s32[], f32[100,32])) -> (s32[], f32[100,32]) {
  %state = (s32[]{:T(128)}, f32[100,32]{1,0:T(8,128)}) parameter(0)
  %counter = s32[]{:T(128)S(1)} get-tuple-element(%state), index=0
  %table = f32[100,32]{1,0:T(8,128)} get-tuple-element(%state), index=1
  %fusion = f32[10,32]{1,0:T(8,128)S(1)} fusion(%table, %counter), kind=kLoop, calls=%fused, metadata={op_name="x"}
  %all-reduce = f32[10,32]{1,0:T(8,128)S(1)} all-reduce(%fusion), replica_groups=mesh['a'=2,'b'=4] {'b'}, to_apply=%add
  ROOT %next = (s32[]{:T(128)}, /*index=1*/f32[100,32]{1,0:T(8,128)}) tuple(%counter, %table)
}

%condition (state.1: (s32[], f32[100,32])) -> pred[] {
  %state.1 = (s32[]{:T(128)}, f32[100,32]{1,0:T(8,128)}) parameter(0)
  %counter.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  %bound = s32[]{:T(128)} constant(7)
  ROOT %less = pred[]{:T(512)} compare(%counter.1, %bound), direction=LT
}

ENTRY %main (x: f32[100,32]) -> bf16[50,32] {
  %x = f32[100,32]{1,0:T(8,128)} parameter(0)
  %zero.1 = s32[]{:T(128)} constant(0)
  %start = (s32[]{:T(128)}, f32[100,32]{1,0:T(8,128)}) tuple(%zero.1, %x)
  %loop = (s32[]{:T(128)}, f32[100,32]{1,0:T(8,128)}) while(%start), condition=%condition, body=%body
  %after = f32[100,32]{1,0:T(8,128)} get-tuple-element(%loop), index=1
  %fetch = (f32[100,32]{1,0:T(8,128)S(1)}, f32[100,32]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%after)
  %fetched = f32[100,32]{1,0:T(8,128)S(1)} copy-done(%fetch)
  %part = ((f32[100,32]{1,0}), f32[5,32]{1,0:T(8,128)S(1)}, s32[]{:S(2)}) slice-start(%x), slice={[0:5], [0:32]}
  %parted = f32[5,32]{1,0:T(8,128)S(1)} slice-done(%part)
  %gather = f32[200,32]{1,0:T(8,128)S(1)} all-gather(%fetched), replica_groups=[4,2]<=[8], dimensions={0}
  ROOT %half = bf16[50,32]{1,0:T(8,128)(2,1)} convert(%gather)
}
"""


def test_a_tpu_s_program_is_read_with_its_two_memories():
    program = Program(TPU_PROGRAM)
    # In HBM: seven turns that read ten rows and compare the counter, a table and five rows fetched, the result.
    assert program.bytes_accessed() == 7 * (4 * 32 * 10 + 4 + 4 + 1) + 4 * 32 * (100 + 5) + 2 * 32 * 50
    assert program.collectives() == [
        Collective("all-gather", 2, 1, 4 * 32 * 200),
        Collective("all-reduce", 4, 7, 7 * 4 * 32 * 10),
    ]
    with pytest.raises(ValueError, match="the loop loop runs an unknown number of times"):
        Program(TPU_PROGRAM.replace("constant(7)", "parameter(1)")).collectives()


# A gather that is begun in one fusion and ended in another, and a reduce-scatter, as XLA writes them for TPUs.
ASYNCHRONOUS = """\
HloModule jit_f, is_scheduled=true, num_partitions=8

%begins (p.0: bf16[96,768]) -> (bf16[96,768], bf16[768,768], s32[2]) {
  %p.0 = bf16[96,768]{1,0} parameter(0)
  %g.0 = bf16[768,768]{1,0} all-gather(%p.0), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  ROOT %c.0 = (bf16[96,768], bf16[768,768], s32[2]) custom-call(%g.0), custom_call_target="AsyncCollectiveStart"
}

%ends (p.1: bf16[96,768], p.2: bf16[768,768]) -> bf16[768,768] {
  %p.1 = bf16[96,768]{1,0} parameter(0)
  %p.2 = bf16[768,768]{1,0} parameter(1)
  %g.1 = bf16[768,768]{1,0} all-gather(%p.1), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  ROOT %c.1 = bf16[768,768]{1,0} custom-call(%p.1, %p.2, %g.1), custom_call_target="AsyncCollectiveDone"
}

%all-reduce-scatter (input: f32[8,16,128]) -> f32[1,16,128] {
  %input = f32[8,16,128]{2,1,0} parameter(0)
  %sum = f32[8,16,128]{2,1,0} all-reduce(%input), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add
  %zero = s32[] constant(0)
  ROOT %own = f32[1,16,128]{2,1,0} dynamic-slice(%sum, %zero, %zero, %zero), dynamic_slice_sizes={1,16,128}
}

ENTRY %main (x: bf16[96,768], y: f32[8,16,128]) -> (bf16[768,768], f32[1,16,128]) {
  %x = bf16[96,768]{1,0} parameter(0)
  %y = f32[8,16,128]{2,1,0} parameter(1)
  %begun = (bf16[96,768], bf16[768,768], s32[2]) fusion(%x), kind=kCustom, calls=%begins
  %part = bf16[96,768]{1,0} get-tuple-element(%begun), index=0
  %buffer = bf16[768,768]{1,0} get-tuple-element(%begun), index=1
  %whole = bf16[768,768]{1,0} fusion(%part, %buffer), kind=kCustom, calls=%ends
  %scattered = f32[1,16,128]{2,1,0} fusion(%y), kind=kCustom, calls=%all-reduce-scatter
  ROOT %both = (bf16[768,768]{1,0}, f32[1,16,128]{2,1,0}) tuple(%whole, %scattered)
}
"""


def test_collectives_within_a_tpu_s_fusions_count_once():
    assert Program(ASYNCHRONOUS).collectives() == [
        Collective("all-gather", 8, 1, 2 * 768 * 768),
        Collective("reduce-scatter", 8, 1, 4 * 8 * 16 * 128),
    ]


# As XLA writes it for a GPU: a product by cuBLAS with its scratch memory, a loop, an exchange of two arrays.
GPU_PROGRAM = """\
HloModule jit_f, is_scheduled=true, num_partitions=8

%fused (p.0: f32[64,32]) -> bf16[64,32] {
  %p.0 = f32[64,32]{1,0} parameter(0)
  ROOT %half = bf16[64,32]{1,0} convert(%p.0)
}

%body (state: (s32[], f32[64,32])) -> (s32[], f32[64,32]) {
  %state = (s32[], f32[64,32]{1,0}) parameter(0)
  %counter = s32[] get-tuple-element(%state), index=0
  %x.1 = f32[64,32]{1,0} get-tuple-element(%state), index=1
  %fusion.1 = bf16[64,32]{1,0} fusion(%x.1), kind=kLoop, calls=%fused, metadata={op_name="layers.1/convert" x=1}
  %fusion.2 = bf16[64,32]{1,0} fusion(%x.1), kind=kLoop, calls=%fused, metadata={op_name="layers.2/convert" x=1}
  ROOT %next = (s32[], f32[64,32]{1,0}) tuple(%counter, %x.1)
}

%condition (state.1: (s32[], f32[64,32])) -> pred[] {
  %state.1 = (s32[], f32[64,32]{1,0}) parameter(0)
  ROOT %true = pred[] constant(true)
}

ENTRY %main (x: bf16[64,32], w: bf16[32,32]) -> f32[64,32] {
  %x = bf16[64,32]{1,0} parameter(0)
  %w = bf16[32,32]{1,0} parameter(1)
  %both = (f32[64,32]{1,0}, s8[33554432]{0}) custom-call(%x, %w), custom_call_target="__cublas$lt$matmul"
  %y = f32[64,32]{1,0} get-tuple-element(%both), index=0
  %zero = s32[] constant(0)
  %start = (s32[], f32[64,32]{1,0}) tuple(%zero, %y)
  %loop = (s32[], f32[64,32]{1,0}) while(%start), condition=%condition, body=%body, \
backend_config={"known_trip_count":{"n":"5"}}
  %z = f32[64,32]{1,0} get-tuple-element(%loop), index=1
  %gather = ((bf16[64,32]{1,0}, bf16[32,32]{1,0}), (bf16[512,32]{1,0}, bf16[256,32]{1,0})) \
all-gather-start(%x, %w), replica_groups=[1,8]<=[8], dimensions={0}
  %gathered = (bf16[512,32]{1,0}, bf16[256,32]{1,0}) all-gather-done(%gather)
  ROOT %copy = f32[64,32]{0,1} copy(%z)
}
"""


def test_a_gpu_s_program_is_read_with_its_launches_and_consumers():
    program = Program(GPU_PROGRAM)
    product = 2 * (64 * 32 + 32 * 32) + 4 * 64 * 32  # without the scratch memory
    fusions, copy, exchange = 10 * (4 + 2) * 64 * 32, 2 * 4 * 64 * 32, 9 * 2 * (64 * 32 + 32 * 32)
    assert program.bytes_accessed() == product + fusions + copy + exchange
    assert program.kernels() == {"fusions": 10, "library calls": 1, "copies": 1, "others": 0}
    assert program.collectives() == [Collective("all-gather", 8, 1, 2 * 768 * 32)]
    largest, second, *_ = program.consumers()
    assert largest == Consumer("layers.*/convert", "fusion", "bf16[64,32]", 10, fusions)
    assert (second.kind, second.bytes) == ("all-gather-start", exchange)
    assert sum(each.bytes for each in program.consumers()) == program.bytes_accessed()


def test_a_fusion_may_return_several_arrays_of_one_instruction():
    program = Program("""\
HloModule jit_f, is_scheduled=true

%fused (p.0: s32[9,512]) -> ((s32[9], s32[9]), s32[9,512]) {
  %p.0 = s32[9,512]{1,0} parameter(0)
  %reverse = s32[9,512]{1,0} reverse(%p.0), dimensions={1}
  %zero = s32[] constant(0)
  %reduce = (s32[9]{0}, s32[9]{0}) reduce(%reverse, %p.0, %zero, %zero), dimensions={1}, to_apply=%larger
  ROOT %tuple = ((s32[9]{0}, s32[9]{0}), s32[9,512]{1,0}) tuple(%reduce, %reverse)
}

ENTRY %main (x: s32[9,512]) -> ((s32[9], s32[9]), s32[9,512]) {
  %x = s32[9,512]{1,0} parameter(0)
  ROOT %fusion = ((s32[9]{0}, s32[9]{0}), s32[9,512]{1,0}) fusion(%x), kind=kInput, calls=%fused
}
""")
    assert program.bytes_accessed() == 4 * (9 * 512 + 9 + 9 + 9 * 512)


def test_a_collective_s_first_group_and_the_axes_along_which_it_is():
    places = list(np.ndindex(2, 4, 1))  # of eight chips
    for groups, group, axes in (
        ("{{0,1,2,3},{4,5,6,7}}", (0, 1, 2, 3), (1,)),
        ("{{0,4},{1,5},{2,6},{3,7}}", (0, 4), (0,)),
        ("{{0,1,4,5},{2,3,6,7}}", (0, 1, 4, 5), (0, 1)),
        ("[2,4]<=[8]", (0, 1, 2, 3), (1,)),
        ("[4,2]<=[2,4]T(1,0)", (0, 4), (0,)),
        ("[1,8]<=[8]", tuple(range(8)), (0, 1)),
        ("mesh['a'=2,'b'=4] {'b'}", (0, 1, 2, 3), (1,)),
        ("mesh['a'=2,'b'=4] {'a'}", (0, 4), (0,)),
        ("mesh['a'=2,'b'=4] {'a','b'}", tuple(range(8)), (0, 1)),
        ("{}", tuple(range(8)), (0, 1)),
    ):
        assert first_group(f", replica_groups={groups}, dimensions={{0}}", 8) == group
        assert axes_of(group, places) == axes
        assert axes_of(group, ()) == axes_of(group, [()] * 8) == ()  # of devices that are no TPUs
