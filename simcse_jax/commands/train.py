"""The command `simcse-jax train`, whose help is in `simcse_jax.main`; `simcse-jax tune` runs it too."""

from collections.abc import Sequence

from simcse_jax.commands.command_line import importing, say_next
from simcse_jax.errors import UserError
from simcse_jax.host import streams

DRY = "--dry-run"
# That it writes to the workdir.
FILES = ("run.json", "metrics.jsonl", "result.json", "examples.json", "report.html", "model/*")


def train(argv: Sequence[str]) -> None:
    """Trains as the arguments say, which are read before JAX is imported: a misspelt field is reported at once.

    Raises:
      UserError: for any mistake in them, the config or the data.
    """
    with importing():
        from simcse_jax.config.checks import validate
        from simcse_jax.config.flags import parse_run

    is_dry = DRY in argv
    fields, workdir, profile, recipe = parse_run([arg for arg in argv if arg != DRY], needs_workdir=not is_dry)
    config = validate(fields)
    with importing():
        from simcse_jax.host.outputs import output_folder
        from simcse_jax.host.storage import is_remote
        from simcse_jax.training.run import sources, train_and_evaluate

    if workdir and not is_remote(workdir):
        output_folder(workdir, sources(config), files=FILES, option="--workdir")
    if is_dry:
        from simcse_jax.training.dry_run import dry_run

        if profile:
            raise UserError(f"{DRY}: writes nothing; leave --profile out")
        return dry_run(config, workdir)
    if train_and_evaluate(config, workdir, profile, recipe=recipe):
        if config.train.report_to:
            streams.say(f"report: {workdir.rstrip('/')}/report.html")
        say_next("export", "--workdir", workdir, "--output", "DIR")
