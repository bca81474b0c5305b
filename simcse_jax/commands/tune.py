"""simcse-jax tune --model M --data FILE [--eval FILE]: a sentence encoder for data of one's own (`configs/tune.py`)."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from simcse_jax.commands.command_line import MODEL, describe_end, invocation, print_help, say_next
from simcse_jax.commands.train import DRY, read_arguments, train, train_as
from simcse_jax.errors import UserError

MODELS = ("--model", "--config.model.init_from")
ABOUT = """\
usage: {program} --model NAME [--model NAME …] --data FILE [--eval FILE] [--workdir DIR] [--config.FIELD=VALUE …]

Trains a sentence encoder further on data of your own, and keeps the model it started from if training did not help.
Recognizes the kind of data, picks settings for its size, and prints them; `{train} --help` has the fields that replace
them. The same command resumes a run that was stopped."""

FLAGS = {
    "--model NAME": MODEL[0].lower() + MODEL[1:].partition(", or glove")[0] + "; of several, each is tuned, in a "
    "folder of its own in --workdir, and compared with the others",
    "--data FILE": "sentences, pairs, triplets, lists of negatives, pairs with scores, or sentences with classes: a "
    "source as for data.train",
    "--eval FILE": "what judges: pairs with scores, SentEval's folder, or one in BEIR's "
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
    model, _ = split_option(argv, *MODELS)
    given, _ = split_option(argv, "--workdir")
    for option, values in (("--model NAME", model), ("--data FILE", data), ("--workdir DIR", given or ["runs"])):
        if not all(values or [""]):
            raise UserError(f"{option} is missing (see {invocation('tune')} --help)")
    workdir = given[-1] if given else f"runs/{Path(data[-1]).stem or 'tuned'}"
    if len(model) == 1:
        train(["--config", "tune", *([] if given else ["--workdir", workdir]), *argv])
    else:
        tune_each(model, workdir, argv)


def tune_each(models: Sequence[str], workdir: str, argv: Sequence[str]) -> None:
    """Tunes each model in a folder of its own, and says which one is better.

    Raises:
      UserError: before any is trained, for a model that is given twice or cannot be read, or if nothing compares them.
    """
    from simcse_jax.config.flags import split_option

    rest = split_option(split_option(argv, *MODELS)[1], "--workdir")[1]
    names = [Path(os.path.abspath(model)).name for model in models]
    if len({*names}) < len(names):
        names = [re.sub(r"[^\w.-]+", "-", model).strip("-") for model in models]
    if twice := next((model for model, name in zip(models, names, strict=True) if names.count(name) > 1), ""):
        raise UserError(f"--model {twice}: is given twice; name another")
    folders = {name: f"{workdir}/{name}" for name in names}
    configs, recipes = {}, {}
    for model, (name, folder) in zip(models, folders.items(), strict=True):
        given = ["--config", "tune", "--model", model, "--workdir", folder, *rest]
        configs[name], _, profile, recipes[name] = read_arguments(given)
        if profile:
            raise UserError("--profile: traces the run of one --model")
        if not configs[name].eval.against_start:
            raise UserError("--model: nothing says which one is better (see above); give --eval FILE, or one --model")
    speaks = [train_as(configs[name], folder, None, recipes[name], dry=DRY in argv) for name, folder in folders.items()]
    if any(speaks):
        from simcse_jax.training.comparing import describe_models

        text, best = describe_models(folders, configs[names[0]].seed)
        print(text)
        say_next("export", "--workdir", best, "--output", "DIR")
