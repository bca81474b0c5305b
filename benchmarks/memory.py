"""Peak memory of the train step against batch size, by the compiler's own account; nothing is run.

    python -m benchmarks.memory                            # for one CPU device
    python -m benchmarks.memory --topology v5e:1x1         # for a TPU chip, with libtpu
    python -m benchmarks.memory --model answerdotai/ModernBERT-base --batches 1 --tokens 8192

Unsupervised SimCSE of --model with --tokens tokens, all at once and in chunks. What is counted are the step's
temporaries, i.e. activations, gradients and the similarity matrix; parameters and optimizer state (12 bytes a
parameter) come on top and are the same in every row.
"""

import jax

from benchmarks import side_by_side
from benchmarks.options import Parser
from simcse_jax.commands.command_line import run_command
from simcse_jax.config.fields import default_config
from simcse_jax.host.outputs import output_file
from simcse_jax.huggingface.published import encoder_config
from simcse_jax.training.costs.compile import memory_of_error, trace_step
from simcse_jax.training.costs.described import described_devices, prepare
from simcse_jax.training.setup import abstract_step


def temporaries(model: str, tokens: int, batch_size: int, chunk_size: int, topology: str | None) -> float:
    """GiB of the compiled step's temporaries; if they do not fit, the size that the TPU compiler reports."""
    config = default_config()
    config.train.batch_size, config.parallel.chunk_size = batch_size, chunk_size
    config.data.max_length = tokens
    devices = described_devices(topology) if topology else jax.devices()[:1]
    try:
        compiled = trace_step(abstract_step(config, encoder_config(model), 1), devices).lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if (sizes := memory_of_error(str(error))) is None:
            raise
        return sizes[0] / 2**30
    return compiled.memory_analysis().temp_size_in_bytes / 2**30


def main() -> None:
    """Prints a line for each batch size as soon as it is known."""
    parser = Parser(prog="benchmarks.memory", description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="bert-base-uncased")
    parser.add_argument("--batches", type=int, least=1, nargs="+", default=[2**power for power in range(6, 15)])
    parser.add_argument("--tokens", type=int, least=1, default=32, help="of a sentence")
    parser.add_argument("--chunk-size", type=int, least=1, default=64)
    parser.add_argument("--topology", help="e.g. v5e:1x1; default: a CPU device")
    parser.add_argument("--output", type=output_file, help="the figures as JSON")
    args = parser.parse_args()
    prepare()
    rows = []
    print(f"| batch | all at once, GiB | in chunks of {args.chunk_size}, GiB |\n| --- | --- | --- |", flush=True)
    for batch_size in args.batches:
        row = {"batch": batch_size}
        for name, chunk_size in (("whole", 0), ("chunks", args.chunk_size)):
            row[name] = temporaries(args.model, args.tokens, batch_size, chunk_size, args.topology)
        rows.append(row)
        print(f"| {batch_size} | {row['whole']:.2f} | {row['chunks']:.2f} |", flush=True)
    side_by_side.report("memory", rows, args.output)


if __name__ == "__main__":
    run_command(main)
