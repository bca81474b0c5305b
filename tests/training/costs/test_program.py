from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from simcse_jax.devices.mesh import AXIS, data_mesh
from simcse_jax.training.costs.program import Collective, Program, group_size

X, W = jnp.ones((64, 32)), jnp.ones((32, 32))


def read(function, *args):
    return Program(jax.jit(function).lower(*args).compile().as_text())


def test_bytes_are_those_of_xla_s_cost_analysis_times_those_of_loops_of_the_branch_with_more_traffic():
    for function in (
        lambda x, w: jnp.tanh(x @ w).sum(), lambda x, w: x[3:10] * 2 + x[20:27], lambda x, w: jax.nn.softmax(x @ w),
        lambda x, w: jax.lax.dynamic_update_slice(x, w[:2], (w[0, 0].astype(int), 0)),
        lambda x, w: jax.grad(lambda w: jnp.sum(jax.nn.softmax(jnp.tanh(x @ w) @ w.T)[:, 0]))(w),
    ):  # fmt: skip
        compiled = jax.jit(function).lower(X, W).compile()
        program = Program(compiled.as_text())
        assert program.bytes_accessed(on_chip=True) == compiled.cost_analysis()["bytes accessed"]
        assert program.bytes_accessed() == program.bytes_accessed(on_chip=True)  # a CPU's memory is all of one kind

    def repeated(times):
        function = lambda x, w: jax.lax.scan(lambda x, _: (jnp.tanh(x @ w), None), x, None, length=times)[0]  # noqa: E731
        return read(function, X, W).bytes_accessed()

    once, five, ten = map(repeated, (2, 5, 10))
    # A turn: x and w in and x out of the product, x in and out of tanh, the counter twice (4 bytes and their sum).
    turn = 4 * (4 * X.size + W.size)
    assert (ten - five) / 5 == pytest.approx((five - once) / 3) == pytest.approx(turn, rel=0.01)

    def branches(*functions):
        function = lambda x, w: jax.lax.cond(x[0, 0] > 0, *functions, x, w)  # noqa: E731
        return read(function, X, W).bytes_accessed()

    small, large = (lambda x, w: x @ w), (lambda x, w: jnp.tanh(x @ w) @ w)
    assert branches(small, large) == branches(large, small) == branches(large, large) > branches(small, small)
    table, rows = jnp.ones((100_000, 8)), jnp.arange(6)
    assert read(lambda table, rows: jnp.tanh(table[rows]), table, rows).bytes_accessed() < 2000


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


def test_the_bytes_that_a_ring_or_nodes_send_and_the_size_of_a_collective_s_groups():
    sent = {kind: Collective(kind, 4, 1, 1000).bytes_sent for kind in ("all-reduce", "all-gather", "reduce-scatter")}
    assert sent == {"all-reduce": 1500, "all-gather": 750, "reduce-scatter": 750}
    assert Collective("collective-permute", 4, 1, 1000).bytes_sent == 1000
    assert Collective("all-reduce", 1, 1, 1000).bytes_sent == 0
    for kind, ways in (("all-reduce", 2), ("all-gather", 1)):
        exchange = Collective(kind, 16, 1, 1600)  # over 2 nodes with 8 devices each
        assert exchange.sent_inside(8) == ways * 1600 * 7 / 8 and exchange.sent_outside(8) == ways * 200 / 2
        assert exchange.sent_outside(16) == 0 and exchange.sent_inside(16) == exchange.bytes_sent
    # Nothing of an all-to-all is the same on two devices: half of it goes to the other node.
    assert Collective("all-to-all", 16, 1, 1600).sent_outside(8) == 800
    for groups, size in (
        ("{{0,1,2,3},{4,5,6,7}}", 4), ("{{0,4},{1,5},{2,6},{3,7}}", 2), ("[2,4]<=[8]", 4), ("[4,2]<=[2,4]T(1,0)", 2),
        ("mesh['a'=2,'b'=4] {'b'}", 4), ("mesh['a'=2,'b'=4] {'a'}", 2), ("mesh['a'=2,'b'=4] {'a','b'}", 8), ("{}", 8),
    ):  # fmt: skip
        assert group_size(f", replica_groups={groups}, dimensions={{0}}", 8) == size


def written(name):
    return (Path(__file__).parent / "programs" / f"{name}.hlo").read_text()


def test_a_tpu_s_program_is_read_with_its_two_memories_and_fusions_of_collectives():
    """A loop over a table, whose rows are summed over devices, copies to the chip's memory, and a gather."""
    program = Program(written("tpu"))
    # In HBM: seven turns that read ten rows and compare the counter, a table and five rows fetched, the result.
    assert program.bytes_accessed() == 7 * (4 * 32 * 10 + 4 + 4 + 1) + 4 * 32 * (100 + 5) + 2 * 32 * 50
    sums = Collective("all-reduce", 4, 7, 7 * 4 * 32 * 10)
    assert program.collectives() == [Collective("all-gather", 2, 1, 4 * 32 * 200), sums]
    with pytest.raises(ValueError, match="the loop loop runs an unknown number of times"):
        Program(written("tpu").replace("constant(7)", "parameter(1)")).collectives()
    # A gather that is begun in one fusion and ended in another, and a reduce-scatter.
    scattered = Collective("reduce-scatter", 8, 1, 4 * 8 * 16 * 128)
    program = Program(written("tpu_asynchronous"))
    assert program.collectives() == [Collective("all-gather", 8, 1, 2 * 768 * 768), scattered]


def test_a_gpu_s_program_is_read_with_fusions_of_several_arrays():
    """A product by cuBLAS with its scratch memory, a loop, an exchange of two arrays."""
    program = Program(written("gpu"))
    product = 2 * (64 * 32 + 32 * 32) + 4 * 64 * 32  # without the scratch memory
    fusions, copy, exchange = 10 * (4 + 2) * 64 * 32, 2 * 4 * 64 * 32, 9 * 2 * (64 * 32 + 32 * 32)
    assert program.bytes_accessed() == product + fusions + copy + exchange
    assert program.collectives() == [Collective("all-gather", 8, 1, 2 * 768 * 32)]
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
