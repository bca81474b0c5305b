"""The notebook in `examples/`: executed as a reader would execute it, and saved with its outputs.

`PYTHONPATH=.:tests python -m support.notebook` executes and saves it, after a change that it shows.
"""

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from support import ROOT

NOTEBOOK = ROOT / "examples" / "simcse_jax.ipynb"


def execute(folder: Path) -> nbformat.NotebookNode:
    """Runs all cells in a kernel whose folder is this one; the first that fails raises `CellExecutionError`."""
    (folder / "first_win").symlink_to(ROOT / "examples" / "first_win")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "XLA_FLAGS": ""}  # one device
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", record_timing=False, resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env=environment)
    return notebook


def streams(notebook: nbformat.NotebookNode) -> str:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.get("name") == "stdout")


def save() -> None:
    """Saves the notebook with new outputs, without progress bars and the version of this Python."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = execute(Path(folder))
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata["language_info"] = {"name": "python"}
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    save()
