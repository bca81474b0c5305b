"""Names on the command line: of a run's checkpoints, RUN@step=200 or RUN@step=last, and with labels, NAME=LABEL."""

import re
from typing import NamedTuple

from simcse_jax.errors import UserError
from simcse_jax.storage import local_path

LAST = "last"
AT_STEP = re.compile(r"(?P<name>.+)@step=(?P<step>[^@/]*)", re.DOTALL)


class AtStep(NamedTuple):
    """A model's name in two parts."""

    name: str  # what has a folder; a model of any kind where there is no step
    step: int | str | None  # `LAST`: the latest one; None: the name has no step

    def __str__(self) -> str:
        return self.name if self.step is None else f"{self.name}@step={self.step}"


def split_step(name: str) -> AtStep:
    """Reads NAME@step=N or NAME@step=last; any other name, and an existing path, is one without a step.

    Raises:
      UserError: when the step is neither a whole number nor `last`.
    """
    match = AT_STEP.fullmatch(name)
    if match is None or local_path(name).exists():
        return AtStep(name, None)
    step = match["step"]
    if step == LAST:
        return AtStep(match["name"], LAST)
    if not re.fullmatch("[0-9]{1,15}", step):
        raise UserError(f"{name}: step={step} is no checkpoint; give the number of a step, or step={LAST}")
    return AtStep(match["name"], int(step))


def split_label(text: str) -> tuple[str, str]:
    """NAME or NAME=LABEL: the name and the label, which is empty where there is none.

    The step of a checkpoint is no label, nor is what has an @ in it; an existing path is a name as a whole.

    Raises:
      UserError: when the label is empty.
    """
    name, _, label = text.rpartition("=")
    if not name or "@" in label or name.endswith("@step") or local_path(text).exists():
        return text, ""
    if not label.strip():
        raise UserError(f"{text}: the label is empty; give NAME=LABEL, or NAME alone")
    return name, label.strip()
