"""`simcse-jax COMMAND …` and `python -m simcse_jax COMMAND …`: lists the commands and runs them."""

import sys
from pathlib import Path

from simcse_jax.commands.command_line import EXAMPLES, HELP, PACKAGE, SCRIPT, run_command
from simcse_jax.errors import UserError, hint
from simcse_jax.host import huge_pages
from simcse_jax.host.version import __version__

GROUPS = {
    "train": {
        "train": "train a sentence encoder by a recipe, and score it",
        "tune": "train a sentence encoder further on data of your own, if that makes it better",
        "runs": "list runs, their scores, and what differs between them",
        "export": "write a run's model for transformers and sentence-transformers",
        "merge": "average models that were trained from one base model",
        "sweep": "train every row of a table, and write the table",
        "mine": "find hard negatives for pairs in a corpus, by the embeddings of a model",
        "prepare": "tokenize training data once, into shards on a disk or in a bucket",
        "aot": "compute what a training step costs on TPUs or GPUs, without any of them",
    },
    "use": {
        "encode": "write the embeddings of a file's sentences",
        "search": "find the nearest sentences of a file for each query",
        "serve": "answer requests for embeddings and search over HTTP, as OpenAI's API does",
        "demo": "open a page in the browser on which to try a model",
    },
    "measure": {
        "evaluate": "score any model on STS and transfer tasks",
        "analyze": "measure and draw how isotropic a model's space is, and how training changed it",
        "geometry": "measure and draw alignment, uniformity and singular values of models and runs",
    },
    "papers": {
        "build-data": "make the papers' training files from what people can download",
        "overlap": "measure how many words the sentences of pairs share",
    },
}
COMMANDS = {name: about for group in GROUPS.values() for name, about in group.items()}
OPTIONS = (*HELP, "--version", "--completion")
TRAINING = ("train", "tune", "sweep")


def help_text(program: str) -> str:
    """The list of commands."""
    lines = [f"usage: {program} COMMAND [OPTION …]", "", "Contrastive sentence encoders (SimCSE) in JAX and Flax."]
    for group, commands in GROUPS.items():
        lines += ["", f"{group}:", *(f"  {name:<12}{about}" for name, about in commands.items())]
    lines += ["", f"{program} COMMAND --help has a command's options, {program} --version the version;"]
    lines += [f"{program} --completion bash (or zsh, fish) prints what completes them in a shell."]
    return "\n".join([*lines, "", f"example:\n  {program} tune {EXAMPLES['tune']}"])


def dispatch() -> None:
    """Runs the command that the first argument names, as if it had been started alone.

    `help` is `--help`, before a command and after it.

    Raises:
      UserError: when there is no such command; whatever the command raises.
    """
    program = PACKAGE if Path(sys.argv[0]).name == "__main__.py" else SCRIPT
    command, *rest = sys.argv[1:] or ["help"]
    if command in ("help", *HELP):
        if {*rest} <= {"help", *HELP}:
            print(help_text(program))
            return
        command, *rest = rest[0], "help", *rest[1:]
    if command == "--version":
        print(f"simcse_jax {__version__}")
        return
    if command == "--completion":
        from simcse_jax.commands.verbs import completion

        print(completion(" ".join(rest), COMMANDS))
        return
    if command not in COMMANDS:
        kind, names = ("option", OPTIONS) if command.startswith("-") else ("command", COMMANDS)
        raise UserError(f"no {kind} {command!r:.60}{hint(command, names)} ({program} --help lists all)")
    if rest[:1] == ["help"]:
        rest[0] = HELP[1]
    sys.argv = [f"{program} {command}", *rest]
    from simcse_jax.commands.verbs import make_main

    make_main(command)()


def main() -> None:
    """The console script."""
    if sys.argv[1:2] and sys.argv[1] in TRAINING:
        huge_pages.use()
    run_command(dispatch)


if __name__ == "__main__":
    main()
