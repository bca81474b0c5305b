"""simcse-jax aot --config FILE --topology v5e:2x4: the costs of a training step on TPUs or GPUs, without any of them.

Compiles the step for devices that are only described, with the TPU compiler of PyPI's `libtpu` or with that of JAX's
CUDA plugin; both run on any Linux machine. `--topology here` compiles for this machine's devices, as a run there does.
Neither weights nor data are read, so every sentence counts as filling its row, whereas a run leaves padding out
(`train.unpad`): `--fill 0.68` does so too. `--encode` compiles the encoding of a batch instead, and `--plan` computes
from both what a whole corpus takes.
"""

import json
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from simcse_jax.commands.verbs import Count, Fields, Names, verb
from simcse_jax.config.checks import validate
from simcse_jax.config.flags import find_config, parse
from simcse_jax.errors import UserError
from simcse_jax.host.outputs import output_file, printing
from simcse_jax.host.storage import write_atomically


@verb
def aot(
    config: str,
    topology: Names,
    *,
    fields: Fields = (),
    scaling: Literal["weak", "strong"] = "weak",
    batch_per_chip: Count | None = None,
    columns: Count | None = None,
    fill: Annotated[float, Parameter(validator=Number(gt=0, lte=1))] = 1.0,
    encode: bool = False,
    plan: Names = (),
    output: str | None = None,
) -> Any:
    """Computes the costs of a training step on TPUs or GPUs, without any of them.

    These are memory, FLOPs, bytes, and the least seconds that it can take. Needs Linux, libtpu (for GPUs jax[cuda13])
    and a recipe; reads neither weights nor data. Prints the costs, and writes them to the file of --output if it is
    given. --config.FIELD=VALUE replaces the recipe's value; `simcse-jax train --help` has the fields. A program that
    calls it computes on the CPU from then on.

    Args:
      config: A recipe, FILE[:VARIANT], e.g. unsup_bert:large.
      topology: TPUs or GPUs, by kind and shape, e.g. v5e:2x4, v6e:4x4, v5p:2x2x2, h200:1, h100:8, a100:4, h200:2x8;
        here: this machine's; several make a scaling table.
      fields: The recipe's values to replace, `"train.dtype=bfloat16"` each.
      scaling: Of several topologies: a fixed batch per chip (weak), or train.batch_size on all of them (strong).
      batch_per_chip: Examples for each chip. By default train.batch_size spread over the first topology.
      columns: Sentences of an example, e.g. 9 with 7 hard negatives. By default as the config shows.
      fill: The share of a batch's places that are tokens; the rest, padding, is left out.
      encode: The costs of encoding a batch, not of a training step.
      plan: What a whole corpus takes, NAME=NUMBER each, e.g. sentences=1e10,tokens=22.
      output: A JSON file for the costs.

    Returns:
      The costs as in the file: those of each topology, or the plan.

    Raises:
      UserError: for any mistake in the options or the recipe, before it compiles, which takes minutes; and when the
        step does not fit into a device's memory.
    """
    if not topology:
        raise UserError("--topology: name TPUs or GPUs, e.g. v5e:2x4")
    if scaling == "strong" and batch_per_chip is not None:
        raise UserError("--scaling strong: leave --batch-per-chip out; the batch is train.batch_size on all topologies")
    if plan and len(topology) > 1:
        raise UserError("--plan: is for one --topology")
    recipe = validate(parse([f"--config={config}", *(f"--config.{field}" for field in fields)], needs_workdir=False)[0])
    from simcse_jax.runs.state import model_spec
    from simcse_jax.training.costs import gpus
    from simcse_jax.training.costs.described import HERE, described_devices, local_topology, prepare
    from simcse_jax.training.costs.fit import encoding_costs, step_costs
    from simcse_jax.training.costs.plan import CorpusPlan, describe_plan, read_plan
    from simcse_jax.training.costs.roofline import describe, table
    from simcse_jax.training.costs.sizes import choose_batch, guess_columns, padded_length, read_models
    from simcse_jax.training.inputs import check_parts
    from simcse_jax.training.setup import abstract_step, data_spec

    spec, data = model_spec(recipe), data_spec(recipe)
    field, max_length = data.longest
    if plan:
        assumptions = read_plan(",".join(plan))
        if (tokens := assumptions["tokens"]) > max_length:
            raise UserError(f"--plan tokens={tokens:g}: sentences are cut at config.{field}={max_length}")
        encode, fill = False, tokens / max_length  # a plan has both programs, and its own sentences
    if encode or not recipe.train.unpad:
        fill = 1.0  # nothing is left out
    path = None if output is None else output_file(output, {"--config": find_config(config)[0]})
    encoder, generator = read_models(spec, data, recipe.views.denoising)

    names = list(topology)
    if names == [HERE]:
        names = [local_topology()]
    else:
        prepare(any(map(gpus.is_gpu, names)))
    chips = {name: len(described_devices(name)) for name in names}
    for count in chips.values():
        check_parts(recipe.parallel.parts, count)
    first = chips[names[0]]
    batches = {
        name: choose_batch(data.batch_size, batch_per_chip, count, first, scaling) for name, count in chips.items()
    }
    width = columns or guess_columns(data)
    dtype = recipe.train.dtype
    work = "encoding" if encode else f"{width} column(s) of data{'' if columns else ' assumed'}"
    precision = "highest" if encode else recipe.train.matmul_precision  # models are never used at a lower one
    with printing(path is not None) as say:
        say(
            f"{recipe.model.init_from}, {encoder.num_layers} layers, {dtype} at precision {precision}; "
            f"{work}, {max_length} tokens{'' if fill == 1 else f', {fill:.0%} of the places filled'}"
        )
        reports = []
        for name in names:
            devices = f"GPU{'s'[: chips[name] - 1]}" if gpus.is_gpu(name) else "chips"
            say(f"{name}: {chips[name]} {devices}, batch {batches[name]}; compiling")
            if encode:
                reports.append(encoding_costs(spec, encoder, (batches[name], max_length), dtype, name, chips[name]))
            else:
                resized = recipe.replaced("train.batch_size", batches[name])
                reports.append(step_costs(abstract_step(resized, encoder, width, generator), name, chips[name], fill))
        figures: Any = [report.to_json() for report in reports]
        text = table(reports) if len(reports) > 1 else describe(reports[0])
        if plan:
            length = padded_length(tokens, max_length)
            say(f"{names[0]}: encoding, {length} tokens with padding; compiling")
            shape = batches[names[0]], length
            encoding = encoding_costs(spec, encoder, shape, dtype, names[0], chips[names[0]])
            corpus = CorpusPlan(assumptions, encoder, reports[0], encoding)
            figures, text = corpus.to_json(), describe_plan(corpus)
        if path:
            write_atomically(path, json.dumps(figures, indent=2) + "\n")
        say(text)
    return figures
