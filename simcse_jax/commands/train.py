"""The command `simcse-jax train`, whose help is in `simcse_jax.main`; `simcse-jax tune` runs it too."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simcse_jax.commands.command_line import importing, say_next
from simcse_jax.errors import UserError
from simcse_jax.host import streams

if TYPE_CHECKING:
    from simcse_jax.config.sections import Config

DRY = "--dry-run"
# That it writes to the workdir.
FILES = ("run.json", "metrics.jsonl", "result.json", "examples.json", "report.html", "model/*")


def train(argv: Sequence[str]) -> None:
    """Trains as the arguments say, which are read before JAX is imported: a misspelt field is reported at once.

    Raises:
      UserError: for any mistake in them, the config or the data.
    """
    config, workdir, profile, recipe = read_arguments(argv)
    if train_as(config, workdir, profile, recipe, dry=DRY in argv):
        say_next("export", "--workdir", workdir, "--output", "DIR")


def read_arguments(argv: Sequence[str]) -> "tuple[Config, str, str | None, dict[str, Any]]":
    """The config, the workdir, the folder of a trace, and the recipe for `run.json`."""
    with importing():
        from simcse_jax.config.checks import validate
        from simcse_jax.config.flags import parse_run

    given = [arg for arg in argv if arg != DRY]
    fields, workdir, profile, recipe = parse_run(given, needs_workdir=DRY not in argv)
    return validate(fields), workdir, profile, recipe


def train_as(
    config: "Config", workdir: str, profile: str | None, recipe: Mapping[str, Any], *, dry: bool = False
) -> bool:
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
    speaks = train_and_evaluate(config, workdir, profile, recipe=recipe)
    if speaks and config.train.report_to:
        streams.say(f"report: {workdir.rstrip('/')}/report.html")
    return speaks
