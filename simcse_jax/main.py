"""python -m simcse_jax.main --config configs/unsup_bert.py --workdir DIR [--config.FIELD=VALUE …] [--profile DIR]"""

import sys

from simcse_jax.command_line import describe_exit_codes, run_command

ABOUT = """\
usage: python -m simcse_jax.main --config FILE[:VARIANT] --workdir DIR [--config.FIELD=VALUE …] [--profile DIR]

Trains a sentence encoder and scores it. Needs the model, training sentences and scored pairs that its config names.
Writes run.json, metrics.jsonl, result.json and checkpoints to DIR. The same command resumes a run that was stopped."""


def help_text() -> str:
    """What `--help` prints."""
    from simcse_jax.config.fields import FIELDS, SECTIONS
    from simcse_jax.config.flags import FOLDERS
    from simcse_jax.config.help import CONFIGS, describe_fields, describe_flags, describe_recipes

    flags = {
        "--config FILE[:VARIANT]": "what to run: a recipe",
        "--workdir DIR": FOLDERS["workdir"],
        "--profile DIR": f"{FOLDERS['profile']} (default: none is made)",
        "--config.FIELD=VALUE": "in place of the recipe's value",
    }
    parts = [describe_flags(flags), describe_recipes(CONFIGS), describe_fields(FIELDS, SECTIONS)]
    return "\n\n".join([ABOUT, *parts, describe_exit_codes()])


def main() -> None:
    """Parses the flags before JAX is imported, so that a misspelt field is answered at once."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(help_text())
        return
    from simcse_jax.config.checks import validate
    from simcse_jax.config.flags import parse_run

    config, workdir, profile = parse_run(sys.argv[1:])
    validate(config)
    from simcse_jax.training.run import train_and_evaluate

    train_and_evaluate(config, workdir, profile)


if __name__ == "__main__":
    run_command(main)
