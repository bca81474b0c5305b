"""simcse-jax tune --model M --data FILE [--eval FILE]: a sentence encoder for data of one's own (`configs/tune.py`)."""

import sys
from pathlib import Path

from simcse_jax.commands.command_line import MODEL, describe_end, invocation, print_help
from simcse_jax.commands.train import train
from simcse_jax.errors import UserError

ABOUT = """\
usage: {program} --model NAME --data FILE [--eval FILE] [--workdir DIR] [--config.FIELD=VALUE …]

Trains a sentence encoder further on data of your own, and keeps the model it started from if training did not help.
Recognizes the kind of data, picks settings for its size, and prints them; `{train} --help` has the fields that replace
them. The same command resumes a run that was stopped."""

FLAGS = {
    "--model NAME": MODEL[0].lower() + MODEL[1:].partition(", or glove")[0],
    "--data FILE": "sentences, pairs, triplets, lists of negatives, or pairs with scores: a source as for data.train",
    "--eval FILE": "what compares the model with the start: pairs with scores, SentEval's folder, or one in BEIR's "
    "layout (default: rows of the data, in five folds or held out)",
    "--folds N": "parts of the rows, each of which is scored by a model of the others, before a model is trained on "
    "all rows; 0: some rows are held out instead (default: 5 for fewer than 5,000 rows)",
    "--workdir DIR": "where checkpoints, metrics and results go (default: runs/NAME of the data)",
    "--report-to none": "neither report.html, a page with the outcome, nor TensorBoard's files",
    "--dry-run": "check everything, make a few steps, and say what the run takes; nothing is written",
    "--config.FIELD=VALUE": "replaces a value",
}


def help_text() -> str:
    """The text of `--help`."""
    from simcse_jax.config.help import describe_flags

    about = ABOUT.format(program=invocation("tune"), train=invocation("train"))
    return "\n\n".join([about, describe_flags(FLAGS), describe_end("tune")])


def main() -> None:
    """Runs the recipe `tune`."""
    argv = sys.argv[1:]
    if print_help(argv, help_text):
        return
    from simcse_jax.config.flags import split_option

    data, _ = split_option(argv, "--data", "--config.data.train")
    model, _ = split_option(argv, "--model", "--config.model.init_from")
    for option, values in (("--model NAME", model), ("--data FILE", data)):
        if not any(values):
            raise UserError(f"{option} is missing (see {invocation('tune')} --help)")
    workdir, _ = split_option(argv, "--workdir")
    named = [] if workdir else ["--workdir", f"runs/{Path(data[-1] if data else '').stem or 'tuned'}"]
    train(["--config", "tune", *named, *argv])
