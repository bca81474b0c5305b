"""simcse-jax aot --config FILE --topology v5e:2x4: the costs of a training step on TPUs or GPUs, without any of them.

Compiles the step for devices that are only described, with the TPU compiler of PyPI's `libtpu` or with that of JAX's
CUDA plugin; both run on any Linux machine. `--topology here` compiles for the devices at hand, as a run there does.
Neither weights nor data are read, so every sentence counts as filling its row, whereas a run leaves padding out
(`train.unpad`): `--fill 0.68` does so too. `--encode` compiles the encoding of a batch instead, and `--plan` computes
from both what a whole corpus takes.
"""

import argparse
import json
import sys

from simcse_jax.choices import SPANS
from simcse_jax.commands.command_line import Parser, started_as
from simcse_jax.config.checks import validate
from simcse_jax.config.flags import find_config, parse
from simcse_jax.config.sections import Section
from simcse_jax.data.columns import ROLES
from simcse_jax.data.sts import PREFIX, of_task
from simcse_jax.encoding.batching import FINE_LENGTHS
from simcse_jax.errors import UserError
from simcse_jax.host.names import split_sources
from simcse_jax.host.outputs import output_file, printing
from simcse_jax.host.storage import write_atomically
from simcse_jax.huggingface.published import encoder_config
from simcse_jax.models.config import EncoderConfig
from simcse_jax.objectives.registry import needing, pairing_of, trained
from simcse_jax.runs.state import model_spec, with_parts
from simcse_jax.training.costs import gpus
from simcse_jax.training.costs.compile import OutOfMemory, compile_encoding, compile_step, largest_chunk
from simcse_jax.training.costs.described import EXAMPLES, HERE, at_hand, described_devices, prepare
from simcse_jax.training.costs.plan import FORM, Plan, describe_plan, read_plan
from simcse_jax.training.costs.roofline import Report, describe, largest, table
from simcse_jax.training.generator import check_generator
from simcse_jax.training.inputs import check_divides, check_parts, check_projector
from simcse_jax.training.setup import abstract_step, data_spec, positives_of


def guess_columns(config: Section) -> int:
    """The number of columns of sentences in a config's data, as far as the config shows it."""
    data, objectives = config.data, trained(config.objective).values()
    pairs = any(one.labels or one.scores for one in objectives) or pairing_of(config.objective) is not None
    if data.positives == SPANS:
        return 1 + positives_of(config)
    if data.augment.name or data.positives or pairs:
        return 2
    if data.columns.anchor:
        return sum(1 for role in ROLES if data.columns[role])
    sources = split_sources(data.train)
    if all(source.startswith(PREFIX) and of_task(source) for source in sources):
        return 2
    return 1 if all(source.endswith(".txt") or source.startswith(PREFIX) for source in sources) else 3


def compile_or_explain(
    config: Section,
    encoder: EncoderConfig,
    columns: int,
    topology: str,
    generator: EncoderConfig | None = None,
    fill: float = 1.0,
) -> Report:
    """Compiles the step.

    Raises:
      UserError: when it is too large for a chip's memory; the message has the largest chunk size that fits.
    """
    try:
        return compile_step(abstract_step(config, encoder, columns, generator), topology, fill)
    except OutOfMemory as error:
        device = "GPU" if gpus.is_gpu(topology) else "chip"
        lacking = f"a {device} needs {error.needed / 2**30:.1f} GiB and has {error.available / 2**30:.2f}"
        print(f"{topology}: out of memory: {lacking}", file=sys.stderr, flush=True)
        chunk = find_chunk(config, encoder, columns, topology, error.available / error.needed, generator, fill)
        advice = (
            f"it fits with --config.parallel.chunk_size={chunk}" if chunk else "no parallel.chunk_size makes it fit"
        )
        batch = config.train.batch_size
        raise UserError(f"{topology}, batch {batch}: out of memory: {lacking}; {advice}") from None


def encoding_or_explain(config: Section, encoder: EncoderConfig, length: int, topology: str, devices: int) -> Report:
    """Compiles the encoding of a batch of sentences of `length` tokens, by `devices` devices.

    Raises:
      UserError: when it is too large for a device's memory; the message has the largest batch that fits.
    """

    def compiled(sentences: int) -> Report:
        spec, dtype = model_spec(config), config.train.dtype
        return compile_encoding(spec, encoder, (sentences * devices, length), dtype, topology)

    def fits(sentences: int) -> bool:
        print(f"{topology}: trying --batch-per-chip={sentences}", file=sys.stderr, flush=True)
        try:
            print(describe(compiled(sentences)), flush=True)
        except OutOfMemory:
            return False
        return True

    each = config.train.batch_size // devices
    try:
        return compiled(each)
    except OutOfMemory as error:
        lacking = f"needs {error.needed / 2**30:.1f} GiB and has {error.available / 2**30:.2f}"
        found = largest_chunk(fits, each, error.available / error.needed)
        advice = f"it fits with --batch-per-chip={found}" if found else "not even a single sentence fits"
        raise UserError(f"{topology}, {each} sentences a device: out of memory: {lacking}; {advice}") from None


def find_chunk(
    config: Section,
    encoder: EncoderConfig,
    columns: int,
    topology: str,
    share: float,
    generator: EncoderConfig | None = None,
    fill: float = 1.0,
) -> int:
    """Finds the largest chunk size that fits, 0 if none does, and prints the step's costs with it.

    Args:
      config, encoder, columns, topology, generator, fill: those of the step that did not fit.
      share: a chip's memory as a share of the memory that the step needs.
    """

    def fits(chunk: int) -> bool:
        smaller = config.replaced("parallel.chunk_size", chunk)
        print(f"{topology}: trying --config.parallel.chunk_size={chunk}", file=sys.stderr, flush=True)
        try:
            step = abstract_step(smaller, encoder, columns, generator)
            print(describe(compile_step(step, topology, fill)), flush=True)
        except OutOfMemory:
            return False
        return True

    a_chip = config.train.batch_size // len(described_devices(topology))
    return largest_chunk(fits, min(config.parallel.chunk_size or a_chip, a_chip), share)


def choose_batch(
    config: Section, batch_per_chip: int | None, chips: int, first_chips: int, scaling: str = "weak"
) -> int:
    """The batch for a topology.

    For weak scaling: the examples per chip (by default the config's batch on the first topology) × chips; for strong
    scaling: the config's.

    Raises:
      UserError: when the chips cannot share it evenly.
    """
    if scaling == "strong":
        check_divides(config.train.batch_size, chips)
        return config.train.batch_size
    if batch_per_chip:
        return batch_per_chip * chips
    check_divides(config.train.batch_size, first_chips)
    return config.train.batch_size // first_chips * chips


def check_plan(args: argparse.Namespace, config: Section) -> dict[str, float]:
    """Reads --plan, and sets the share of tokens from it if the run leaves padding out.

    Raises:
      UserError: when it has a mistake, or other options contradict it.
    """
    plan = read_plan(args.plan)
    tokens, (field, max_length) = plan["tokens"], data_spec(config).longest
    if tokens > max_length:
        raise UserError(f"--plan tokens={tokens:g}: sentences are cut at config.{field}={max_length}")
    for option, given in (("--topologies", args.topologies), ("--encode", args.encode), ("--fill", args.fill != 1)):
        if given:
            raise UserError(f"--plan: leave {option} out; a plan is for one --topology, and computes both programs")
    args.fill = tokens / max_length if config.train.unpad else 1.0
    return plan


def padded_length(tokens: float, max_length: int) -> int:
    """The length of a batch of sentences of so many tokens, when many sentences are encoded."""
    return min(next((length for length in FINE_LENGTHS if length >= tokens), max_length), max_length)


def _read_arguments() -> tuple[argparse.Namespace, Section]:
    """The options and the recipe with its fields, each checked alone."""
    parser = Parser(
        "aot",
        description="Computes the costs of a training step on TPUs or GPUs, without any of them: memory, FLOPs, bytes, "
        "and the least seconds that it can take.\nNeeds Linux, libtpu (for GPUs jax[cuda13]) and a recipe; reads "
        "neither weights nor data.\nPrints the costs, and writes them to the file of --output if it is given.",
        epilog=f"--config.FIELD=VALUE replaces the recipe's value; {started_as('train')} --help has the fields.\n",
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE[:VARIANT]", required=True, help="a recipe, e.g. unsup_bert:large")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--topology", help=f"TPUs or GPUs, by kind and shape, e.g. {EXAMPLES}, {gpus.EXAMPLES}; {HERE}: this machine's"
    )
    which.add_argument("--topologies", help="several, comma-separated: a scaling table")
    parser.add_argument(
        "--scaling",
        choices=("weak", "strong"),
        help="of --topologies: a fixed batch per chip (weak, the default), or train.batch_size on all of them (strong)",
    )
    parser.add_argument(
        "--batch-per-chip",
        type=int,
        help="examples for each chip (default: train.batch_size spread over the first topology)",
    )
    parser.add_argument(
        "--columns", type=int, help="sentences of an example, e.g. 9 with 7 hard negatives (default: from the config)"
    )
    parser.add_argument(
        "--fill",
        type=float,
        default=1.0,
        help="the share of a batch's places that are tokens; the rest, padding, is left out (default 1: all are)",
    )
    parser.add_argument("--encode", action="store_true", help="the costs of encoding a batch, not of a training step")
    parser.add_argument("--plan", metavar="NAME=NUMBER,…", help=f"what a whole corpus takes, e.g. {FORM}")
    parser.add_argument("--top", type=int, default=0, help="list so many of the largest consumers of HBM traffic")
    parser.add_argument("--output", help="a JSON file for the costs")
    args, rest = parser.parse_known_args()
    config, _ = parse([f"--config={args.config}", *rest], needs_workdir=False)
    config = validate(config)
    if args.batch_per_chip is not None and args.batch_per_chip < 1:
        raise UserError(f"--batch-per-chip {args.batch_per_chip}: must be 1 or more")
    if args.columns is not None and args.columns < 1:
        raise UserError(f"--columns {args.columns}: must be 1 or more")
    if args.scaling and args.topologies is None:
        raise UserError(f"--scaling {args.scaling}: give --topologies, the sizes to compare")
    if args.scaling == "strong" and args.batch_per_chip is not None:
        raise UserError("--scaling strong: leave --batch-per-chip out; the batch is train.batch_size on all topologies")
    if not 0 < args.fill <= 1:
        raise UserError(f"--fill {args.fill}: must be above 0 and at most 1")
    if args.top < 0:
        raise UserError(f"--top {args.top}: must be 0 or more")
    for option, set_ in (("--fill", args.fill != 1), ("--columns", args.columns)):
        if set_ and args.encode:
            raise UserError(f"--encode: leave {option} out, which is for training steps")
    if args.fill != 1 and not config.train.unpad:
        raise UserError(f"--fill {args.fill}: leave it out, or train.unpad=False, with which padding is computed too")
    return args, config


def _read_models(config: Section) -> tuple[EncoderConfig, EncoderConfig | None]:
    """The encoder, and the generator if the objective has one; both fit the recipe."""
    encoder = encoder_config(config.model.init_from, config.model.num_layers)
    field, most = data_spec(config).longest
    if most > encoder.max_length:
        raise UserError(f"config.{field}={most}: the model takes {encoder.max_length} tokens")
    if config.views.positive_template or config.views.denoising != "none":
        raise UserError(
            "config.views.positive_template, config.views.denoising: the step has tokens of templates, which aot, "
            "without a tokenizer, does not know; leave them out"
        )
    generator = encoder_config(config.model.generator) if needing(config.objective, "replaces_tokens") else None
    if generator:
        names = config.model.generator, config.model.init_from
        check_generator(names[0], generator, names[1], encoder, (field, most))
    spec = model_spec(config)
    check_projector(spec, with_parts(encoder, spec))
    return encoder, generator


def main() -> None:
    """Checks all arguments before it compiles, which takes minutes."""
    args, config = _read_arguments()
    plan = check_plan(args, config) if args.plan is not None else None
    recipe, _ = find_config(args.config)
    output = None if args.output is None else output_file(args.output, {"--config": recipe})
    encoder, generator = _read_models(config)
    columns = args.columns or guess_columns(config)

    names = [args.topology] if args.topologies is None else [name.strip() for name in args.topologies.split(",")]
    if args.topology == HERE:
        names = [at_hand()]
    else:
        prepare(any(map(gpus.is_gpu, names)))
    chips = {name: len(described_devices(name)) for name in names}
    for count in chips.values():
        check_parts(config.parallel.parts, count)
    first = chips[names[0]]
    batches = {
        name: choose_batch(config, args.batch_per_chip, count, first, args.scaling or "weak")
        for name, count in chips.items()
    }
    what = "encoding" if args.encode else f"{columns} column(s) of data{'' if args.columns else ' assumed'}"
    precision = "highest" if args.encode else config.train.matmul_precision  # models are never used at a lower one
    with printing(output is not None) as say:
        say(
            f"{config.model.init_from}, {encoder.num_layers} layers, {config.train.dtype} at precision {precision}; "
            f"{what}, {data_spec(config).longest[1]} tokens"
            f"{'' if args.fill == 1 else f', {args.fill:.0%} of the places filled'}"
        )
        reports = []
        for name in names:
            devices = f"GPU{'s'[: chips[name] - 1]}" if gpus.is_gpu(name) else "chips"
            say(f"{name}: {chips[name]} {devices}, batch {batches[name]}; compiling")
            config = config.replaced("train.batch_size", batches[name])
            if args.encode:
                reports.append(encoding_or_explain(config, encoder, data_spec(config).longest[1], name, chips[name]))
            else:
                reports.append(compile_or_explain(config, encoder, columns, name, generator, args.fill))
        figures: object = [report.to_json() for report in reports]
        text = table(reports) if args.topologies else describe(reports[0])
        if plan is not None:
            length = padded_length(plan["tokens"], data_spec(config).longest[1])
            say(f"{names[0]}: encoding, {length} tokens with padding; compiling")
            encoding = encoding_or_explain(config, encoder, length, names[0], chips[names[0]])
            reports.append(encoding)
            made = Plan(plan, encoder, reports[0], encoding)
            figures, text = made.to_json(), describe_plan(made)
        if output:
            write_atomically(output, json.dumps(figures, indent=2) + "\n")
        say(text)
        for report in reports if args.top else ():
            say(largest(report, args.top))
