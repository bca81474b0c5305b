"""Names that people write: RUN@step=200 for a checkpoint, NAME=LABEL, glove:FILE, package:NAME, and lists of names."""

import csv
import importlib.util
import os
import re
from pathlib import Path
from typing import NamedTuple

from simcse_jax.errors import UserError
from simcse_jax.host.storage import is_remote, local_path

LAST = "last"
GLOVE = re.compile(r"glove(?P<options>(?:\+[^+:]*)*):(?P<file>.*)", re.DOTALL)
GLOVE_OPTIONS = ("lower", "stopwords")
AT_STEP = re.compile(r"(?P<name>.+)@step=(?P<step>[^@/]*)", re.DOTALL)


class AtStep(NamedTuple):
    """A model's name in two parts."""

    name: str  # what has a folder; a model of any kind where there is no step
    step: int | str | None  # `LAST`: the latest one; None: the name has no step

    def __str__(self) -> str:
        return self.name if self.step is None else f"{self.name}@step={self.step}"


def split_step(name: str) -> AtStep:
    """Reads NAME@step=N or NAME@step=last; any other name, and an existing path, is one without a step."""
    match = AT_STEP.fullmatch(name)
    if match is None or local_path(name).exists():
        return AtStep(name, None)
    step = match["step"]
    if step == LAST:
        return AtStep(match["name"], LAST)
    if not re.fullmatch("[0-9]{1,15}", step):
        raise UserError(f"{name}: step={step} is not a checkpoint; give the number of a step, or step={LAST}")
    return AtStep(match["name"], int(step))


def split_label(text: str) -> tuple[str, str]:
    """NAME or NAME=LABEL: the name and the label, which is empty where there is none.

    The step of a checkpoint is not a label, nor is anything with an @; an existing path is a name as a whole.
    """
    name, _, label = text.rpartition("=")
    if not name or "@" in label or name.endswith("@step") or local_path(text).exists():
        return text, ""
    if not label.strip():
        raise UserError(f"{text}: the label is empty; give NAME=LABEL, or NAME alone")
    return name, label.strip()


class Glove(NamedTuple):
    """The name of a file of word vectors."""

    file: Path
    lower_case: bool  # sentences are put into lower case first
    stop_words: bool  # English stop words count too


def split_glove(name: str) -> Glove | None:
    """Reads glove:FILE, glove+lower:FILE, glove+stopwords:FILE or both; None for any other name."""
    match = GLOVE.fullmatch(name)
    if match is None:
        return None
    options = match["options"].split("+")[1:]
    if wrong := [option for option in options if option not in GLOVE_OPTIONS or options.count(option) > 1]:
        raise UserError(f"{name}: no option {wrong[0]!r}; glove:FILE may have {' and '.join(GLOVE_OPTIONS)}, each once")
    if not match["file"].strip() or is_remote(match["file"]):
        raise UserError(f"{name}: does not name a file on a disk; give glove:FILE, such as glove:glove.6B.300d.txt")
    return Glove(local_path(match["file"]), "lower" in options, "stopwords" in options)


def package_root(name: str) -> Path | None:
    """The folder of the installed package in package:NAME; None for any other name, and where there is none."""
    package = name.removeprefix("package:")
    if package == name or not package.isidentifier() or package == "__main__":  # which has no spec
        return None
    spec = importlib.util.find_spec(package)
    return Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


def split_sources(specification: str) -> list[str]:
    """The sources in a comma-separated list. A name with a comma is quoted as in CSV, unless it is an existing file."""
    if "," not in specification or local_path(specification).exists():
        return [specification]
    cure = "a comma separates sources; put a name with a comma in double quotes"
    try:
        names = [name.strip() for name in next(csv.reader([specification], strict=True, skipinitialspace=True))]
    except (csv.Error, StopIteration) as error:
        raise UserError(f"{specification}: not a list of sources: {error}; {cure}") from None
    if "" in names:
        raise UserError(f"{specification}: source {names.index('') + 1} of {len(names)} has no name; {cure}")
    places = [os.path.realpath(local_path(name)) for name in names]
    for name, place in zip(names, places, strict=True):
        if places.count(place) > 1:
            raise UserError(f"{specification}: {name} is named twice; remove one")
    return names


def by_field(field: str, specification: str) -> dict[str, str]:
    """The sources of a field by its name; of several, FIELD[0], FIELD[1] and so on."""
    names = split_sources(specification)
    return {f"{field}[{place}]" if names[1:] else field: name for place, name in enumerate(names)}
