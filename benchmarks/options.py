"""The options of a benchmark."""

import argparse
from typing import Any, NoReturn

from simcse_jax.errors import UserError


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line and defaults in its help; `add_argument` takes `least` and `most` too."""

    def __init__(self, **kwargs: Any):
        self._bounds: dict[str, tuple[float, float]] = {}
        super().__init__(formatter_class=argparse.ArgumentDefaultsHelpFormatter, **kwargs)

    def add_argument(self, *names: str, least: float | None = None, most: float = 2**31 - 1, **kwargs: Any) -> Any:
        """As argparse has it, with bounds."""
        action = super().add_argument(*names, **kwargs)
        if least is not None:
            self._bounds[action.dest] = least, most
        return action

    def parse_args(self, *args: Any, **kwargs: Any) -> Any:
        """As argparse has it.

        Raises:
          UserError: for a value out of its bounds.
        """
        options = super().parse_args(*args, **kwargs)
        for name, (least, most) in self._bounds.items():
            values = getattr(options, name)
            for value in values if isinstance(values, list) else [values]:
                if value is not None and not least <= value <= most:
                    raise UserError(f"--{name.replace('_', '-')} {value}: must be from {least} to {most}")
        return options

    def error(self, message: str) -> NoReturn:
        """Raises a `UserError` in place of printing the usage and leaving."""
        raise UserError(f"{message} (see {self.prog} --help)")
