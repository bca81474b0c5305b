"""TensorBoard's files in the workdir."""

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from simcse_jax.errors import UserError, system_message
from simcse_jax.host.storage import Folder, is_remote, write_atomically

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter


class TensorBoard:
    """Writes curves to the folder `tensorboard`; those of a resumed run go back to the resumed step."""

    def __init__(self, folder: Folder, step: int | None):
        """Writes nothing yet; `step` is the resumed one, None at a run's start."""
        self._folder = folder / "tensorboard"
        self._temporary = tempfile.TemporaryDirectory() if is_remote(folder) else None
        self._purge_step = 0 if step is None else step + 1
        self._writer: SummaryWriter | None = None  # made by the first flush: its import takes tenths of a second
        self._unshown: list[tuple[int, float, Mapping[str, float]]] = []  # with their times

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the numbers of a step."""
        self._unshown.append((step, time.time(), values))

    def flush(self) -> None:
        """Writes all numbers so far."""
        try:
            self._show()
        except OSError as error:
            raise UserError(f"{self._folder}: cannot be written: {system_message(error)}") from None
        self._upload()

    def _show(self) -> None:
        if not self._unshown:
            return
        if self._writer is None:
            from tensorboardX import SummaryWriter

            folder = self._temporary.name if self._temporary else str(self._folder)
            self._writer = SummaryWriter(folder, purge_step=self._purge_step, write_to_disk=True)
        for step, seconds, values in self._unshown:
            for name, number in values.items():
                self._writer.add_scalar(name, number, step, seconds)
        self._unshown = []
        self._writer.flush()

    def _upload(self) -> None:
        if self._temporary:
            for file in Path(self._temporary.name).iterdir():
                write_atomically(self._folder / file.name, file.read_bytes())

    def finish(self, step: int, result: Mapping[str, float]) -> None:
        """Nothing: TensorBoard shows curves, and these are single numbers."""

    def close(self) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()  # its thread may write until here
            self._upload()
        if self._temporary:
            self._temporary.cleanup()
