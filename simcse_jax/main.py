"""simcse-jax train --config unsup_bert --workdir DIR [--config.FIELD=VALUE …] [--profile DIR]"""

import sys

from simcse_jax.commands.command_line import (
    describe_exit_codes,
    importing,
    run_command,
    say_next,
    started_as,
    warnings_in_a_line,
)
from simcse_jax.errors import require

ABOUT = """\
usage: {program} --config FILE[:VARIANT] --workdir DIR [--config.FIELD=VALUE …] [--profile DIR]

Trains a sentence encoder and scores it. Needs a recipe, and the model, the training sentences and the scored pairs that
the recipe names. Writes to DIR: run.json (config, versions, device), metrics.jsonl and TensorBoard files (losses and
scores), checkpoints, and result.json (the final scores). The same command resumes a run that was stopped."""


FILES = ("run.json", "metrics.jsonl", "result.json", "model/*")  # that it writes to the workdir


def help_text() -> str:
    """The text of `--help`."""
    from simcse_jax.config.fields import FIELDS, SECTIONS
    from simcse_jax.config.flags import FOLDERS
    from simcse_jax.config.help import describe_fields, describe_flags, describe_recipes
    from simcse_jax.config.recipes import FOLDER

    flags = {
        "--config FILE[:VARIANT]": "what to run: a recipe, a config file of your own, or the run.json of a run",
        "--data FILE, --model NAME": "short for --config.data.train and --config.model.init_from",
        "--workdir DIR": FOLDERS["workdir"],
        "--profile DIR": f"{FOLDERS['profile']} (default: no trace)",
        "--config.FIELD=VALUE": "replaces the recipe's value",
    }
    parts = [describe_flags(flags), describe_recipes(FOLDER), describe_fields(FIELDS, SECTIONS)]
    return "\n\n".join([ABOUT.format(program=started_as("train")), *parts, describe_exit_codes()])


def main() -> None:
    """Parses the flags before JAX is imported, so that a misspelt field is reported at once."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(help_text())
        return
    with importing():
        from simcse_jax.config.checks import validate
        from simcse_jax.config.flags import parse_run

    config, workdir, profile = parse_run(sys.argv[1:])
    validate(config)
    require("train", "tensorboardX")
    with importing():
        from simcse_jax.host.outputs import output_folder
        from simcse_jax.host.storage import is_remote
        from simcse_jax.training.inputs import sources
        from simcse_jax.training.run import train_and_evaluate

    if not is_remote(workdir):
        output_folder(workdir, sources(config), files=FILES, option="--workdir", utf8=True)
    with warnings_in_a_line():
        is_first = train_and_evaluate(config, workdir, profile)
    if is_first:
        say_next("export", "--workdir", workdir, "--output", "DIR")


if __name__ == "__main__":
    run_command(main)
