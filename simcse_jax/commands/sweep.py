"""simcse-jax sweep --config configs/ablations/FILE.py --workdir DIR [--config.FIELD=VALUE …]

Runs every variant of a sweep with every seed of `sweep.seeds`, skips finished runs, resumes stopped ones, writes the
table to DIR: FILE.md, FILE.csv, FILE.png, FILE.svg and report.html. `--config.sweep.only=A,B` runs these variants
alone. `--over train.batch_size=32,64` makes the rows of any recipe.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcse_jax.commands.command_line import describe_end, invocation, print_help, shorten_warnings
from simcse_jax.errors import UserError, require
from simcse_jax.host.storage import local_path

if TYPE_CHECKING:
    from ml_collections import config_dict

ABOUT = """\
usage: {program} --config FILE[:VARIANT] --workdir DIR [--config.FIELD=VALUE …]

Trains every row of a table with every seed and writes the table. Needs the files and models that its
configs name. Writes the runs, FILE.md, FILE.csv, FILE.png, FILE.svg and report.html to DIR. Run again, it skips
finished runs and resumes stopped ones."""


def help_text() -> str:
    """What `--help` prints."""
    from simcse_jax.config.flags import FOLDERS
    from simcse_jax.config.help import describe_fields, describe_flags, describe_recipes
    from simcse_jax.config.recipes import FOLDER
    from simcse_jax.training.sweeps.variants import FIELDS

    flags = {
        "--config FILE[:VARIANT]": "a recipe with rows; with --over any recipe",
        "--over FIELD=VALUE,VALUE": "rows with these values of a field (VALUE=LABEL names a row, == is an = in a "
        "value); given again, each value meets each other one",
        "--data FILE, --model NAME, --eval DATA": "short for --config.data.train, --config.model.init_from and "
        "--config.eval.data",
        "--workdir DIR": FOLDERS["workdir"],
        "--config.FIELD=VALUE": "for the rows that do not set the field themselves "
        f"({invocation('train')} --help has the fields)",
    }
    sections = {"sweep": "The table. A recipe sets the first four."}
    recipes, fields = describe_recipes(FOLDER / "ablations"), describe_fields(FIELDS, sections)
    about = ABOUT.format(program=invocation("sweep"))
    return "\n\n".join([about, describe_flags(flags), recipes, fields, describe_end("sweep")])


def main() -> None:
    """The command."""
    if not print_help(sys.argv[1:], help_text):
        print(run(sys.argv[1:]).read_text(encoding="utf-8"))


def run(argv: Sequence[str]) -> Path:
    """Makes the table of a command line, as `make_table` does."""
    from simcse_jax.config.flags import parse, split_config, split_option
    from simcse_jax.training.sweeps.over import OPTION, make_sweep, split_options

    options, rest = split_option(argv, OPTION)
    over = split_options(options)
    config, workdir = parse(rest, prepare=(lambda recipe: make_sweep(recipe, over)) if over else None)
    command = shlex.join(["simcse-jax", "sweep", *argv])
    command = command.encode(errors="backslashreplace").decode()  # a folder's name need not be UTF-8
    return make_table(split_config(rest)[0], config, over, workdir, command)


def make_table(
    recipe: str, config: "config_dict.ConfigDict", over: Mapping[str, Sequence[Any]], workdir: str, command: str
) -> Path:
    """Trains the rows and writes the table, whose file is returned. Checks what it can before the first run.

    Args:
      recipe: FILE or FILE:VARIANT, which names the table's files and, without `over`, has the rows.
      config: with the section `sweep`, all values set.
      over: the rows, by the names of fields their values.
      workdir: where the runs and the table go.
      command: what makes the table, as its notes quote it.

    Raises:
      UserError: for any mistake; also when a run has failed, after the table of the others is written.
    """
    from simcse_jax.config.sections import Section
    from simcse_jax.training.sweeps.over import name_columns, rows_over
    from simcse_jax.training.sweeps.variants import load_variants, read_sweep

    if over:
        name_columns(config)
    variants = read_sweep(config, rows_over(over, config) if over else load_variants(recipe))
    sweep = Section.of(config.sweep)
    require("train", "matplotlib")
    from simcse_jax.evaluation.analysis.page import PAGE
    from simcse_jax.host.locks import held
    from simcse_jax.host.outputs import output_folder
    from simcse_jax.host.storage import is_remote
    from simcse_jax.training.run import sources
    from simcse_jax.training.sweeps import report, runner, scores, table

    if is_remote(workdir):
        raise UserError(f"--workdir {workdir}: a sweep's folder must be on a disk")
    folder = local_path(workdir)
    runs = runner.all_runs(variants, sweep, folder)
    file, _, argument = recipe.partition(":")
    name = "_".join([Path(file).stem, argument]) if argument else Path(file).stem
    for _, row_config in variants:
        files = [f"{name}.{kind}" for kind in ("md", "csv", "png", "svg")] + [PAGE]
        output_folder(workdir, sources(row_config), files=files, option="--workdir")
    with held(folder), shorten_warnings():
        runner.check_same_data(runs)
        problems = runner.run_all(runs) if sweep.run else runner.report_finished(runs, folder)
        runner.check_same_data(runs)  # the new ones too
        by_run, every_absent, measures = scores.read_scores(runs)
        absent = {name: tasks for name, tasks in every_absent.items() if name in sweep.metrics}
        failed = f"{len(problems)} of {len(runs)} runs failed; the first: {problems[0]}" if problems else ""
        try:
            table.write(
                folder,
                name,
                sweep,
                [scores.comparable(*variant, absent) for variant in variants],
                by_run,
                notes=[
                    scores.note_missing_tasks(absent),
                    f"`{command}`",
                    runner.describe_runs(runs),
                    runner.describe_machines(runs),
                ],
                headings=scores.headings([config for _, config in variants], absent, measures),
            )
            if config.train.report_to:
                report.write(folder, name, {run.name: run.workdir for run in runs})
        except UserError as error:  # of a full disk, on which runs fail too
            raise UserError(f"{failed}; and {error}" if failed else str(error)) from None
    if failed:
        print((folder / f"{name}.md").read_text(encoding="utf-8"))
        raise UserError(failed)
    return folder / f"{name}.md"
