"""How commands name a model with its number of layers and its pooler."""

import re
from typing import NamedTuple

from simcse_jax.models.config import POOLERS
from simcse_jax.storage import local_path


class Model(NamedTuple):
    """A model as a command names it: NAME, NAME@LAYERS, NAME@POOLER or NAME@LAYERS@POOLER."""

    name: str
    num_layers: int = 0  # 0: all
    pooler: str | None = None  # None: the model's own

    @property
    def details(self) -> str:
        """What it says beside the name, for a picture."""
        layers = [f"{self.num_layers} layer{'s' * (self.num_layers > 1)}"] if self.num_layers else []
        return "".join(f", {part}" for part in [*layers, *([self.pooler] if self.pooler else [])])


def parse_model(spec: str) -> Model:
    """From the command line: NAME, NAME@LAYERS, NAME@POOLER or both; NAME may be OWNER/NAME@REVISION."""
    parts = [spec] if local_path(spec).exists() else spec.split("@")
    num_layers, pooler = 0, None
    while len(parts) > 1:  # from the end: before the options may stand a revision of a hub's model
        if re.fullmatch("[1-9][0-9]*", parts[-1]) and not num_layers:
            num_layers = int(parts.pop())
        elif parts[-1] in POOLERS and pooler is None:
            pooler = parts.pop()
        else:
            break
    return Model("@".join(parts), num_layers, pooler)
