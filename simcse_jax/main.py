"""simcse-jax train --config unsup_bert --workdir DIR [--config.FIELD=VALUE …] [--profile DIR]"""

import sys

from simcse_jax.commands.command_line import describe_end, invocation, print_help, run_command
from simcse_jax.commands.train import train
from simcse_jax.host import huge_pages

ABOUT = """\
usage: {program} --config FILE[:VARIANT] --workdir DIR [--config.FIELD=VALUE …] [--profile DIR] [--dry-run]

Trains a sentence encoder and scores it. Needs a recipe, and the model, the training sentences and the scored pairs that
the recipe names. Writes to DIR: run.json (config, versions, device), metrics.jsonl and TensorBoard files (losses and
scores), checkpoints, result.json (the final scores), and report.html, a page of all of this for a browser. The same
command resumes a run that was stopped."""


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
        "--report-to none": "neither report.html nor TensorBoard's files",
        "--profile DIR": f"{FOLDERS['profile']} (default: no trace)",
        "--dry-run": "check everything, make a few steps, and say what the run takes; nothing is written",
        "--config.FIELD=VALUE": "replaces the recipe's value",
        "--help FIELD": "this field alone, e.g. learning_rate, or those of a section, e.g. train",
    }
    parts = [describe_flags(flags), describe_recipes(FOLDER), describe_fields(FIELDS, SECTIONS)]
    return "\n\n".join([ABOUT.format(program=invocation("train")), *parts, describe_end("train")])


def main() -> None:
    """The command."""
    if not print_help(sys.argv[1:], help_text):
        train(sys.argv[1:])


if __name__ == "__main__":
    huge_pages.use()
    run_command(main)
