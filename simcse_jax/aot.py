"""python -m simcse_jax.aot --config FILE --topology v5e:2x4: what a train step costs on TPUs, without a TPU.

Compiles the step of `train.py` with the TPU compiler of PyPI's `libtpu`, which runs on any Linux machine, for chips
that are only described. Neither weights nor data are read, so every sentence is taken to fill its row, whereas a run
leaves padding out (`train.unpad`).
"""

import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from ml_collections import config_dict

from simcse_jax import config as config_lib
from simcse_jax import step as step_lib
from simcse_jax.cost import Program, product_flops
from simcse_jax.data.columns import ROLES
from simcse_jax.errors import Parser, UserError, reason, run_command
from simcse_jax.inputs import check_divides
from simcse_jax.models import huggingface
from simcse_jax.models.config import EncoderConfig
from simcse_jax.models.published import encoder_config
from simcse_jax.models.trained import trained_shapes
from simcse_jax.recipe import make_recipe, make_settings
from simcse_jax.roofline import CHIPS, Report, describe, table
from simcse_jax.storage import output_file

EXAMPLES = "v5e:2x4, v6e:4x4, v5p:2x2x2"
# No chip is used: several may compile at a time, and libtpu need not look for the machine's own TPU nor complain that
# there is none.
ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
}


class OutOfMemory(Exception):
    """The compiler found no way to fit the step; bytes."""

    def __init__(self, needed: float, available: float):
        self.needed, self.available = needed, available


def prepare() -> None:
    """Lets libtpu compile where there is no TPU; to be called before JAX touches a device."""
    jax.config.update("jax_platforms", "cpu")  # or JAX would look for a TPU here
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def described_devices(topology: str) -> list[jax.Device]:
    """The chips of a topology such as v5e:2x4, which need not be there.

    Raises:
      UserError: when libtpu is missing or the topology is none.
    """
    generation = topology.partition(":")[0]
    if generation not in CHIPS:
        raise UserError(f"--topology {topology}: must be one of {', '.join(CHIPS)} and a shape, e.g. {EXAMPLES}")
    if importlib.util.find_spec("libtpu") is None:
        raise UserError(
            "libtpu is missing: try `pip install libtpu`, best in an environment of its own, since "
            "where it is installed other JAX programs look for a TPU unless JAX_PLATFORMS=cpu is set"
        )
    # Else a v4 chip counts as two devices; since v5p a chip is always one.
    options = {"chip_config_name": "megacore"} if generation == "v4" else {}
    try:
        return list(topologies.get_topology_desc(topology, "tpu", **options).devices)
    except jax.errors.JaxRuntimeError as error:
        raise UserError(f"--topology {topology}: {reason(error)}; examples are {EXAMPLES}") from None


def trace_step(
    config: config_dict.ConfigDict, encoder: EncoderConfig, columns: int, devices: list[jax.Device]
) -> jax.stages.Traced:
    """Traces the train step as a run of `config` would compile it, on shapes alone."""
    mesh = step_lib.data_mesh(devices)
    graph, _ = huggingface.build(encoder, config.model.mlp != "none", jnp.dtype(config.train.dtype))
    settings = make_settings(config, total_steps=1)
    state = jax.eval_shape(step_lib.init_state, trained_shapes(encoder, config), settings)
    tokens = jax.ShapeDtypeStruct((config.train.batch_size, columns, config.data.max_length), jnp.int32)
    batch = {"input_ids": tokens, "attention_mask": tokens}
    batch["index"] = jax.ShapeDtypeStruct((config.train.batch_size,), jnp.int32)
    if config.objective.softmax_nli.weight:
        batch["label"] = batch["index"]

    def placed(sharding: jax.sharding.Sharding, tree: Any) -> Any:
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)

    replicated = step_lib.replicated(mesh)
    masking = step_lib.LanguageModel(mask_id=103, special_ids=(0, 100, 101, 102, 103))  # BERT's
    step = step_lib.make_step(graph, make_recipe(config, columns, masking), mesh)
    return step.trace(
        placed(replicated, state), placed(step_lib.split_over_examples(mesh), batch), placed(replicated, settings)
    )


def guess_columns(config: config_dict.ConfigDict) -> int:
    """How many columns of sentences the data of a config will have, as far as the config tells."""
    data = config.data
    if data.augment.name or data.positives or config.objective.softmax_nli.weight:
        return 2
    if data.columns.anchor:
        return sum(1 for role in ROLES if data.columns[role])
    return 1 if data.train.endswith(".txt") else 3


def compile_step(config: config_dict.ConfigDict, encoder: EncoderConfig, columns: int, topology: str) -> Report:
    """Compiles the step for a topology and reads its costs.

    Raises:
      OutOfMemory: when it does not fit.
    """
    devices = described_devices(topology)
    started = time.perf_counter()
    traced = trace_step(config, encoder, columns, devices)
    try:
        compiled = traced.lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if (needed_and_available := memory_of_error(str(error))) is None:
            raise
        raise OutOfMemory(*needed_and_available) from None
    memory, program = compiled.memory_analysis(), Program(compiled.as_text())
    return Report(
        topology=topology,
        chips=len(devices),
        batch=config.train.batch_size,
        sentences=config.train.batch_size * columns,
        compile_seconds=time.perf_counter() - started,
        memory={
            "arguments": memory.argument_size_in_bytes,
            "results": memory.output_size_in_bytes - memory.alias_size_in_bytes,
            "temporaries": memory.temp_size_in_bytes,
            "program": memory.generated_code_size_in_bytes,
        },
        passes=dict(product_flops(traced.jaxpr)),
        hbm_bytes=program.bytes_accessed(),
        collectives=program.collectives(),
    )


def memory_of_error(message: str) -> tuple[float, float] | None:
    """The bytes needed and available, of a message such as `… HBM …: required (55.33G) exceeds available (15.75G)`.

    None where the compiler did not fail for want of HBM.
    """
    sizes = re.findall(r"\b(\d+(?:\.\d+)?)([KMGT])\b", message)
    if "RESOURCE_EXHAUSTED" not in message or "hbm" not in message.lower() or len(sizes) < 2:
        return None
    needed, available = (float(size) * 2 ** (10 * (1 + "KMGT".index(unit))) for size, unit in sizes[:2])
    return needed, available


def largest_chunk(fits: Callable[[int], bool], whole: int, share: float) -> int:
    """The largest of whole/2, whole/4, … that fits, 0 if none does.

    Args:
      fits: tries one size, which takes a minute or two unless it is far too large.
      whole: the size that was too large.
      share: of its memory that there is. The search starts just above this share of `whole`.
    """
    chunk = whole // 2
    while chunk // 2 >= whole * share:
        chunk //= 2
    while chunk and not fits(chunk):
        chunk //= 2
    return chunk


def explain_out_of_memory(
    config: config_dict.ConfigDict, encoder: EncoderConfig, columns: int, topology: str, error: OutOfMemory
) -> UserError:
    """Looks for the chunk size that would fit; prints what the step costs with it, and says it."""
    gigabytes = f"a chip needs {error.needed / 2**30:.1f} GiB and has {error.available / 2**30:.2f}"
    print(f"{topology}: out of memory: {gigabytes}", file=sys.stderr, flush=True)
    a_chip = config.train.batch_size // len(described_devices(topology))

    def fits(chunk: int) -> bool:
        smaller = config.copy_and_resolve_references()
        smaller.parallel.chunk_size = chunk
        print(f"{topology}: trying --config.parallel.chunk_size={chunk}", file=sys.stderr, flush=True)
        try:
            print(describe(compile_step(smaller, encoder, columns, topology)), flush=True)
        except OutOfMemory:
            return False
        return True

    whole = min(config.parallel.chunk_size or a_chip, a_chip)
    chunk = largest_chunk(fits, whole, error.available / error.needed)
    advice = f"it fits with --config.parallel.chunk_size={chunk}" if chunk else "no parallel.chunk_size makes it fit"
    return UserError(f"{topology}, batch {config.train.batch_size}: out of memory: {gigabytes}; {advice}")


def choose_batch(config: config_dict.ConfigDict, batch_per_chip: int | None, chips: int, first_chips: int) -> int:
    """The batch for a topology: so many examples a chip, by default what the config's batch is on the first one."""
    if batch_per_chip:
        return batch_per_chip * chips
    check_divides(config, first_chips)
    return config.train.batch_size // first_chips * chips


def main() -> None:
    """Checks all arguments first, since compiling takes minutes."""
    parser = Parser(
        prog="simcse_jax.aot",
        description="What a train step costs on TPUs, without a TPU.",
        epilog="Further: --config FILE[:VARIANT] [--config.FIELD=VALUE …], as for simcse_jax.main.",
        allow_abbrev=False,
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topology", help=f"generation and shape of a TPU slice, e.g. {EXAMPLES}")
    which.add_argument("--topologies", help="several, comma-separated: a scaling table at a fixed batch a chip")
    parser.add_argument("--batch-per-chip", type=int, help="default: train.batch_size on the first topology")
    parser.add_argument(
        "--columns", type=int, choices=(1, 2, 3, 4), help="of the data; default: as far as the config tells"
    )
    parser.add_argument("--output", help="a JSON file for the figures")
    args, rest = parser.parse_known_args()
    config, _ = config_lib.parse(rest, needs_workdir=False)
    config_lib.validate(config)
    if args.batch_per_chip is not None and args.batch_per_chip < 1:
        raise UserError(f"--batch-per-chip {args.batch_per_chip}: must be 1 or more")
    output = output_file(args.output) if args.output else None
    encoder = encoder_config(config.model.init_from, config.model.num_layers)
    if config.data.max_length > encoder.max_length:
        raise UserError(f"config.data.max_length={config.data.max_length}: the model takes {encoder.max_length} tokens")
    columns = args.columns or guess_columns(config)

    prepare()
    names = [args.topology] if args.topologies is None else [name.strip() for name in args.topologies.split(",")]
    chips = {name: len(described_devices(name)) for name in names}
    batches = {name: choose_batch(config, args.batch_per_chip, count, chips[names[0]]) for name, count in chips.items()}
    print(
        f"{config.model.init_from}, {encoder.num_layers} layers, {config.train.dtype} at precision "
        f"{config.train.matmul_precision}; {columns} column(s) of data{'' if args.columns else ' assumed'}, "
        f"{config.data.max_length} tokens",
        flush=True,
    )
    reports = []
    for name in names:
        print(f"{name}: {chips[name]} chips, batch {batches[name]}; compiling", flush=True)
        config.train.batch_size = batches[name]
        try:
            reports.append(compile_step(config, encoder, columns, name))
        except OutOfMemory as error:
            raise explain_out_of_memory(config, encoder, columns, name, error) from None
    print(table(reports) if args.topologies else describe(reports[0]))
    if output:
        output.write_text(json.dumps([report.to_json() for report in reports], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run_command(main)
