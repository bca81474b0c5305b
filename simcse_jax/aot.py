"""simcse-jax aot --config FILE --topology v5e:2x4: the costs of a training step on TPUs, without a TPU.

Compiles the step with the TPU compiler of PyPI's `libtpu`, which runs on any Linux machine, for chips that are only
described. Neither weights nor data are read, so every sentence counts as filling its row, whereas a run leaves padding
out (`train.unpad`).
"""

import json
import sys

from ml_collections import config_dict

from simcse_jax.command_line import Parser, run_command, started_as
from simcse_jax.config.checks import validate
from simcse_jax.config.flags import find_config, parse
from simcse_jax.costs.compile import EXAMPLES, OutOfMemory, compile_step, described_devices, largest_chunk, prepare
from simcse_jax.costs.roofline import Report, describe, table
from simcse_jax.data.columns import ROLES
from simcse_jax.data.sources import split_sources
from simcse_jax.data.spans import SPANS
from simcse_jax.data.sts_texts import PREFIX
from simcse_jax.errors import UserError
from simcse_jax.huggingface.published import encoder_config
from simcse_jax.models.config import EncoderConfig
from simcse_jax.objectives.registry import needs
from simcse_jax.outputs import output_file, printing
from simcse_jax.runs.state import with_parts
from simcse_jax.storage import write_atomically
from simcse_jax.training.columns import positives_of
from simcse_jax.training.generator import check_generator
from simcse_jax.training.inputs import check_divides, check_projector


def guess_columns(config: config_dict.ConfigDict) -> int:
    """The number of columns of sentences in a config's data, as far as the config shows it."""
    data, needed = config.data, needs(config.objective)
    if data.positives == SPANS:
        return 1 + positives_of(config)
    if data.augment.name or data.positives or needed.labels or needed.negative_pairs:
        return 2
    if data.columns.anchor:
        return sum(1 for role in ROLES if data.columns[role])
    alone = all(source.endswith(".txt") or source.startswith(PREFIX) for source in split_sources(data.train))
    return 1 if alone else 3


def compile_or_explain(
    config: config_dict.ConfigDict,
    encoder: EncoderConfig,
    columns: int,
    topology: str,
    generator: EncoderConfig | None = None,
) -> Report:
    """Compiles the step.

    Raises:
      UserError: when it is too large for a chip's memory; the message has the largest chunk size that fits.
    """
    try:
        return compile_step(config, encoder, columns, topology, generator)
    except OutOfMemory as error:
        lacking = f"a chip needs {error.needed / 2**30:.1f} GiB and has {error.available / 2**30:.2f}"
        print(f"{topology}: out of memory: {lacking}", file=sys.stderr, flush=True)
        chunk = find_chunk(config, encoder, columns, topology, error.available / error.needed, generator)
        advice = (
            f"it fits with --config.parallel.chunk_size={chunk}" if chunk else "no parallel.chunk_size makes it fit"
        )
        batch = config.train.batch_size
        raise UserError(f"{topology}, batch {batch}: out of memory: {lacking}; {advice}") from None


def find_chunk(
    config: config_dict.ConfigDict,
    encoder: EncoderConfig,
    columns: int,
    topology: str,
    share: float,
    generator: EncoderConfig | None = None,
) -> int:
    """Finds the largest chunk size that fits, 0 if none does, and prints the step's costs with it.

    Args:
      config, encoder, columns, topology, generator: those of the step that did not fit.
      share: a chip's memory as a share of the memory that the step needs.
    """

    def fits(chunk: int) -> bool:
        smaller = config.copy_and_resolve_references()
        smaller.parallel.chunk_size = chunk
        print(f"{topology}: trying --config.parallel.chunk_size={chunk}", file=sys.stderr, flush=True)
        try:
            print(describe(compile_step(smaller, encoder, columns, topology, generator)), flush=True)
        except OutOfMemory:
            return False
        return True

    a_chip = config.train.batch_size // len(described_devices(topology))
    return largest_chunk(fits, min(config.parallel.chunk_size or a_chip, a_chip), share)


def choose_batch(config: config_dict.ConfigDict, batch_per_chip: int | None, chips: int, first_chips: int) -> int:
    """The batch for a topology: the examples per chip (by default the config's batch on the first topology) × chips."""
    if batch_per_chip:
        return batch_per_chip * chips
    check_divides(config, first_chips)
    return config.train.batch_size // first_chips * chips


def main() -> None:
    """Checks all arguments before it compiles, which takes minutes."""
    parser = Parser(
        prog="simcse_jax.aot",
        description="Computes the costs of a training step on TPUs, without a TPU: memory, FLOPs, bytes, and the "
        "least seconds that it can take.\nNeeds Linux, libtpu and a recipe; reads neither weights nor data.\nPrints "
        "the costs, and writes them to the file of --output if it is given.",
        epilog=f"--config.FIELD=VALUE replaces the recipe's value; {started_as('train')} --help has the fields.\n",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE[:VARIANT]", required=True, help="a recipe, e.g. unsup_bert:large")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topology", help=f"generation and shape of a TPU slice, e.g. {EXAMPLES}")
    which.add_argument("--topologies", help="several, comma-separated: a scaling table with a fixed batch per chip")
    parser.add_argument(
        "--batch-per-chip",
        type=int,
        help="examples for each chip (default: train.batch_size spread over the first topology)",
    )
    parser.add_argument(
        "--columns", type=int, choices=(1, 2, 3, 4), help="sentences of an example: 1 to 4 (default: from the config)"
    )
    parser.add_argument("--output", help="a JSON file for the costs")
    args, rest = parser.parse_known_args()
    config, _ = parse([f"--config={args.config}", *rest], needs_workdir=False)
    validate(config)
    if args.batch_per_chip is not None and args.batch_per_chip < 1:
        raise UserError(f"--batch-per-chip {args.batch_per_chip}: must be 1 or more")
    recipe, _, _ = find_config(args.config).partition(":")
    output = None if args.output is None else output_file(args.output, {"--config": recipe})
    encoder = encoder_config(config.model.init_from, config.model.num_layers)
    if config.data.max_length > encoder.max_length:
        raise UserError(f"config.data.max_length={config.data.max_length}: the model takes {encoder.max_length} tokens")
    generator = encoder_config(config.model.generator) if needs(config.objective).replaced_tokens else None
    if generator:
        check_generator(config, encoder, generator)
    check_projector(config, with_parts(encoder, config.model))
    columns = args.columns or guess_columns(config)

    prepare()
    names = [args.topology] if args.topologies is None else [name.strip() for name in args.topologies.split(",")]
    chips = {name: len(described_devices(name)) for name in names}
    batches = {name: choose_batch(config, args.batch_per_chip, count, chips[names[0]]) for name, count in chips.items()}
    with printing(output is not None) as say:
        say(
            f"{config.model.init_from}, {encoder.num_layers} layers, {config.train.dtype} at precision "
            f"{config.train.matmul_precision}; {columns} column(s) of data{'' if args.columns else ' assumed'}, "
            f"{config.data.max_length} tokens"
        )
        reports = []
        for name in names:
            say(f"{name}: {chips[name]} chips, batch {batches[name]}; compiling")
            config.train.batch_size = batches[name]
            reports.append(compile_or_explain(config, encoder, columns, name, generator))
        if output:
            write_atomically(output, json.dumps([report.to_json() for report in reports], indent=2) + "\n")
        say(table(reports) if args.topologies else describe(reports[0]))


if __name__ == "__main__":
    run_command(main)
