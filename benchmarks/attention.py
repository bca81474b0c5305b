"""Attention alone, of long texts in bfloat16: our blocks, the hardware's kernel, and PyTorch's SDPA.

    python -m benchmarks.attention [--tokens 512 2048 8192] [--batch-tokens 16384] [--peers pytorch] [--output FILE]

Twelve heads of 64 numbers, nothing dropped. "blocks" is what `models.attention.attend` computes without kernels, up to
512 tokens all at once; "kernel" is cuDNN on a GPU, one head after the other on a CPU. Arrays lie as a layer's
projections do: texts, tokens, heads, numbers. PyTorch is in a process of its own. Times are medians of the rounds, of
calls that take 50 ms together. MiB are results and temporaries: of the compiled program, or of PyTorch's allocator on a
GPU. Differences are norms, as shares of those of what our blocks compute in float32, the largest of three gradients;
also where a text's last third is padding. What fails has its reason in place of a number.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks import side_by_side
from benchmarks.contender import Done, Round
from benchmarks.options import Parser
from benchmarks.side_by_side import Child, Contender
from simcse_jax.commands.command_line import run_command
from simcse_jax.host.outputs import output_file

HEADS, HEAD_SIZE = 12, 64
COLUMNS = {"forward_ms": "forward, ms", "forward_mib": "MiB", "both_ms": "with backward, ms", "both_mib": "MiB"}
COLUMNS |= {x: f"{x.replace('_', ' ')} differ by" for x in ("values", "gradients", "padded_values", "padded_gradients")}
Figures = dict[str, Any]  # by column: a number, or the reason why there is none


def ours(tokens: Sequence[int], batch_tokens: int, rounds: int) -> Round:
    """Our two ways and their reference in float32, all compiled at the same time."""
    import jax
    import jax.numpy as jnp

    from simcse_jax.models.attention import NO_ORDER, attend, cudnn, head_by_head
    from simcse_jax.models.platforms import for_platform

    def compiled(length: int, name: str, each: str) -> Any:
        dtype = jnp.float32 if name == "exact" else jnp.bfloat16
        heads = functools.partial(head_by_head, near=None, dtype=dtype)
        way: Any = functools.partial(attend, order=NO_ORDER, dropout=None, dtype=dtype)
        if name == "kernel":
            way = functools.partial(for_platform, cpu=heads, default=functools.partial(cudnn, reach=(None, None)))

        def program(*arrays: Any, mask: Any) -> Any:
            gradient, *three = (x.astype(dtype).swapaxes(1, 2) for x in arrays)
            if each == "forward":
                return (way(*three, mask).swapaxes(1, 2),)
            values, pull = jax.vjp(lambda *three: way(*three, mask), *three)
            return [x.swapaxes(1, 2) for x in (values, *pull(gradient))]

        with jax.default_matmul_precision("highest" if name == "exact" else None):  # a GPU would round float32 factors
            lowered = jax.jit(program).lower(*inputs[length], mask=masks[length])
        if name == "kernel" and jax.default_backend() == "gpu" and "__cudnn$fmha" not in lowered.as_text():
            raise RuntimeError("the program has no kernel of cuDNN's")
        return lowered.compile()

    difference = jax.jit(lambda x, y: jnp.linalg.norm((x - y).ravel()) / jnp.linalg.norm(y.ravel()))

    @functools.cache
    def compare(length: int, name: str, prefix: str) -> Figures:
        mask = masks[length].at[:, length - length // 3 :].set(0) if prefix else masks[length]
        results = (programs[length, each, "both"].result()(*inputs[length], mask=mask) for each in (name, "exact"))
        values, *gradients = (difference(*pair) for pair in zip(*results, strict=True))
        return {f"{prefix}values": float(values), f"{prefix}gradients": float(jnp.stack(gradients).max())}

    def run(name: str, length: int, each: str) -> Figures:
        program = programs[length, name, each].result()
        memory = program.memory_analysis()
        mib = (memory.temp_size_in_bytes + memory.output_size_in_bytes) / 2**20
        call = functools.partial(program, *inputs[length], mask=masks[length])
        found = {f"{each}_ms": milliseconds(call, jax.block_until_ready), f"{each}_mib": mib}
        for prefix in ("", "padded_") if each == "both" else ():
            found |= tried(f"{prefix}values", compare, length, name, prefix)
        return found

    shapes = {length: (max(1, batch_tokens // length), length, HEADS, HEAD_SIZE) for length in tokens}
    masks = {length: jnp.ones(shape[:2], jnp.int32) for length, shape in shapes.items()}
    inputs = {n: tuple(jax.random.normal(jax.random.key(n), (4, *shape), jnp.bfloat16)) for n, shape in shapes.items()}
    kinds = [("blocks", "forward"), ("blocks", "both"), ("kernel", "forward"), ("kernel", "both"), ("exact", "both")]
    with ThreadPoolExecutor() as pool:
        programs = {(length, *kind): pool.submit(compiled, length, *kind) for length in tokens for kind in kinds}
    return in_turn({name: functools.partial(run, name) for name in ("blocks", "kernel")}, tokens, rounds)


def pytorch(tokens: Sequence[int], batch_tokens: int, rounds: int) -> Round:
    """PyTorch's scaled_dot_product_attention, by the kernel that it chooses itself."""
    import torch

    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")

    def run(length: int, each: str) -> Figures:
        shape = (max(1, batch_tokens // length), length, HEADS, HEAD_SIZE)
        gradient, *three = (torch.randn(shape, dtype=torch.bfloat16, requires_grad=each == "both") for _ in range(4))

        def call() -> Any:
            values = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in three))
            return values if each == "forward" else torch.autograd.grad(values, three, gradient.transpose(1, 2))

        if not torch.cuda.is_available():
            return {f"{each}_ms": milliseconds(call, lambda _: None)}
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        mib = (torch.cuda.max_memory_allocated() - before) / 2**20
        return {f"{each}_ms": milliseconds(call, lambda _: torch.cuda.synchronize()), f"{each}_mib": mib}

    return in_turn({"pytorch": run}, tokens, rounds)


def in_turn(runs: dict[str, Callable[[int, str], Figures]], tokens: Sequence[int], rounds: int) -> Round:
    """So many rounds of the first length, then as many of the next one."""
    lengths = iter([length for length in tokens for _ in range(rounds)])

    def passes(run: Callable[[int, str], Figures], length: int) -> Figures:
        return tried("forward_ms", run, length, "forward") | tried("both_ms", run, length, "both")

    return lambda: Done(1, {name: passes(run, now) for now in [next(lengths)] for name, run in runs.items()})


def milliseconds(call: Callable[[], Any], wait: Callable[[Any], Any]) -> float:
    """Of a call, on average over as many as take about 50 ms."""
    times = 1
    for _ in range(3):  # warms up, finds out how many, measures
        started = time.perf_counter()
        for _ in range(times):
            result = call()
        wait(result)
        seconds = (time.perf_counter() - started) / times
        times = min(1000, max(1, round(0.05 / seconds)))
    return 1000 * seconds


def tried(column: str, measure: Callable[..., Figures], *args: Any) -> Figures:
    """The figures, or in this column why there are none."""
    try:
        return measure(*args)
    except Exception as error:
        return {column: f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"}


def main() -> None:
    """Prints each length's rows as they are measured."""
    parser = Parser(prog="benchmarks.attention", description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", nargs="+", type=int, least=1, default=[512, 2048, 8192], help="of a text")
    parser.add_argument("--batch-tokens", type=int, least=1, default=16384, help="of all texts of a call")
    parser.add_argument("--peers", nargs="*", choices=("pytorch",), default=["pytorch"])
    parser.add_argument("--rounds", type=int, least=1, default=5)
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    args = parser.parse_args()
    options = {name: value for name, value in vars(args).items() if name not in ("peers", "output")}
    rows, children = [], {}
    with contextlib.ExitStack() as stack:
        for name in ("ours", *args.peers):
            children[name] = stack.enter_context(Child(Contender(name, f"benchmarks.attention:{name}", options)))
        devices = {name: tried("device", child.wait)["device"] for name, child in children.items()}
        print(side_by_side.heading(), *(f"{name}: {device}" for name, device in devices.items()), sep="\n")
        print("\n| tokens | | " + " | ".join(COLUMNS.values()) + " |\n|" + " --- |" * (2 + len(COLUMNS)), flush=True)
        for length in args.tokens:
            answers: dict[str, list[Figures]] = {}
            for name in [*children] * args.rounds:
                told = tried("failed", children[name].round)
                for program, figures in told.get("notes", {name: {"forward_ms": told.get("failed")}}).items():
                    answers.setdefault(program, []).append(figures)
            for program, found in answers.items():
                figures = {}
                for column in COLUMNS:
                    if each := sorted([x[column] for x in found if column in x], key=lambda x: (isinstance(x, str), x)):
                        figures[column] = each[len(each) // 2]  # the median, where a reason is more than any number
                measured = [
                    (f"{program}, {length} tokens, {name}", figures[f"{each}_ms"], "ms")
                    for each, name in (("forward", "forward"), ("both", "with backward"))
                    if isinstance(figures.get(f"{each}_ms"), float)
                ]
                about = {"tokens": length, "program": program, "device": devices["ours"], "figures": measured}
                rows.append(options | about | figures)
                texts = (figures.get(column, "") for column in COLUMNS)
                cells = [x.replace("|", "/") if isinstance(x, str) else f"{x:.4g}" for x in texts]
                print(f"| {length:,} | {program} | " + " | ".join(cells) + " |", flush=True)
    side_by_side.report("attention", rows, args.output)


if __name__ == "__main__":
    run_command(main)
