"""The command `simcse-jax train`, whose help is in `simcse_jax.main`; `simcse-jax tune` runs it too."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simcse_jax.commands.command_line import importing, say_next
from simcse_jax.errors import UserError

if TYPE_CHECKING:
    from simcse_jax.config.sections import Config

DRY = "--dry-run"
FILES = ("run.json", "metrics.jsonl", "result.json", "model/*")  # that it writes to the workdir


def train(argv: Sequence[str]) -> None:
    """Trains as the arguments say, which are read before JAX is imported: a misspelt field is reported at once.

    Raises:
      UserError: for any mistake in them, the config or the data.
    """
    config, workdir, profile = read_arguments(argv)
    if train_as(config, workdir, profile, dry=DRY in argv):
        say_next("export", "--workdir", workdir, "--output", "DIR")


def read_arguments(argv: Sequence[str]) -> "tuple[Config, str, str | None]":
    """The config, the workdir and the folder of a trace."""
    with importing():
        from simcse_jax.config.checks import validate
        from simcse_jax.config.flags import parse_run

    fields, workdir, profile = parse_run([arg for arg in argv if arg != DRY], needs_workdir=DRY not in argv)
    return validate(fields), workdir, profile


def train_as(config: "Config", workdir: str, profile: str | None = None, *, dry: bool = False) -> bool:
    """Trains as the config says, or `dry` only says what that takes; whether this process speaks of what follows."""
    with importing():
        from simcse_jax.host.outputs import output_folder
        from simcse_jax.host.storage import is_remote
        from simcse_jax.training.run import sources, train_and_evaluate

    if workdir and not is_remote(workdir):
        output_folder(workdir, sources(config), files=FILES, option="--workdir")
    if dry:
        from simcse_jax.training.dry_run import dry_run

        if profile:
            raise UserError(f"{DRY}: writes nothing; leave --profile out")
        dry_run(config, workdir)
        return False
    return train_and_evaluate(config, workdir, profile)
