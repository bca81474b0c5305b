"""simcse-jax runs FOLDER …: the runs in folders, with their scores and what differs between them."""

from simcse_jax.commands.verbs import Texts, verb
from simcse_jax.errors import UserError
from simcse_jax.host.names import split_label
from simcse_jax.host.storage import local_path


@verb
def list_runs(folders: Texts, /) -> list[list[str]]:
    """Lists runs: their steps, their scores on development and test sets, and the fields in which they differ.

    Needs the folders of runs, or folders that have some. Prints a table, the best run first, and returns its rows, of
    which the first has the names of the columns.

    Args:
      folders: Of a run, or of several at any depth; FOLDER=LABEL gives its name in the table.
    """
    named = [split_label(folder) for folder in folders]
    for folder, _ in named:
        if not local_path(folder).is_dir():
            raise UserError(f"{folder}: no such folder on this machine")
    from simcse_jax.runs.listing import find_runs, rows, summarize_run

    paths = [local_path(folder) for folder, _ in named]
    labels = {path: label for path, (_, label) in zip(paths, named, strict=True) if label}
    runs = [summarize_run(folder) for folder in find_runs(paths)]
    runs.sort(key=lambda run: -next(iter(run.scores.values()), float("-inf")))
    table = list(rows(runs, paths[0] if len(paths) == 1 and len(runs) > 1 else paths[0].parent, labels))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for first, *rest in table:
        print("  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]).rstrip())
    return table
