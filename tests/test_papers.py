"""docs/background/papers.md against papers and code: every numbered item is there, and what the page names works."""

import importlib
import re
import shlex
import sys
from collections.abc import Iterable, Iterator

import pytest
from support import ROOT
from support.pages import commands, report

from simcse_jax.__main__ import COMMANDS
from simcse_jax.commands import verbs
from simcse_jax.config.checks import validate
from simcse_jax.config.fields import FIELDS
from simcse_jax.config.flags import parse, split_config
from simcse_jax.data.building.builders import BUILDERS
from simcse_jax.errors import UserError
from simcse_jax.training.sweeps.variants import load_variants, read_sweep

pytestmark = pytest.mark.docs
PAGE = ROOT / "docs" / "background" / "papers.md"
ITEMS = {  # the beginning of a paper's heading → the numbered items of the paper
    "SimCSE (": {"Table": "1 2 3 4 5 6 7 8 A.1 B.1 B.2 B.3 C.1 D.1 D.2 E.1", "Figure": "1 2 3 F.1 G.1"}
    | {"Equation": "1 2 3 4 5 6 7 8", "Appendix": "A B C D E F G"},
    "SimCSE++ (": {"Table": "1 2 3 4 5 6 7", "Figure": "1", "Equation": "1 2 3 4 5 6 7 8", "Appendix": "A B"},
    "On Isotropy and Learning Dynamics (": {"Table": "1 2 3", "Figure": " ".join(map(str, range(1, 25)))}
    | {"Equation": " ".join(map(str, range(1, 18))), "Appendix": "A B C D E"},
}
CLAIMS = {  # and the sections that claim something that a command or a test checks
    "SimCSE (": {"4", "5"},
    "SimCSE++ (": {"3.2", "4.2", "5.1", "5.3"},
    "On Isotropy and Learning Dynamics (": {"2.4", "2.5", "3.1", "4.1", "4.2"},
}
HERE = ("not run", "–")  # a cell on what was run here if it has no link: no claims
KINDS = {"Tables": "Table", "Figures": "Figure", "Equations": "Equation", "Appendices": "Appendix"}
SPANS = re.compile(r"(?<!`)`([^`]+)`(?!`)")
FUNCTION = re.compile(r"[a-z_]+(?:\.\w+)+")
FILES = (".py", ".txt", ".csv", ".gz", ".json", ".jsonl", ".bz2")
RECIPE = re.compile(r"ablations/\w+(?::\w+)?")
GIVEN = re.compile(r"--config ([\w/:]+)")
TEXT = PAGE.read_text(encoding="utf-8")


def rows(paper: str) -> Iterator[dict[str, str]]:
    section = next(part for part in re.split(r"^## ", TEXT, flags=re.MULTILINE) if part.startswith(paper))
    for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        headings, _, *lines = (split(line) for line in table.splitlines())
        for cells in lines:
            yield dict(zip(headings, cells, strict=True))


def split(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def numbers(paper: str, kind: str) -> list[str]:
    """The numbers of the items of a kind that have a row: `Tables 1, 3` has two."""
    found = []
    for row in rows(paper):
        first, _, rest = row[""].partition(" ")
        if KINDS.get(first, first) == kind:
            found += rest.split(", ")
    return found


def test_every_numbered_item_and_every_claim_has_its_row_which_says_where_its_result_is():
    for paper, kinds in ITEMS.items():
        for kind, expected in kinds.items():
            found = numbers(paper, kind)
            assert sorted(set(found)) == sorted(expected.split()), (paper, kind)
            assert kind == "Appendix" or len(found) == len(expected.split()), "an item has two rows"
        assert CLAIMS[paper] <= set(numbers(paper, "Section"))
    said = [(row[""], row["here"]) for paper in ITEMS for row in rows(paper) if "here" in row]
    assert len(said) > 30
    assert not [f"{item}: {here}" for item, here in said if "](" not in here and here not in HERE]


def test_all_that_is_needed_every_page_of_results_and_every_builder_is_named():
    explained = {word for row in rows("What the commands need") for word in row["needs"].split(", ")}
    needed = {word for paper in ITEMS for row in rows(paper) for word in re.split("[,;] ", row.get("needs", ""))}
    assert {word for word in needed if word not in ("", "–") and not word.startswith("as ")} == explained
    pages = {path.name for path in PAGE.with_name("results").glob("*.md")}
    assert pages == set(re.findall(r"\]\(results/(\w+\.md)", TEXT)), "papers.md links each page of results"
    lines = [" ".join(row.values()) for row in rows("What the commands need")]
    for name, builder in BUILDERS.items():
        assert [line for line in lines if f"build-data {name} --" in line and f"`{builder.output}`" in line], name


def resolve(path: str, given: Iterable[str] = ("--workdir=w",)) -> None:
    """Reads a recipe with fields, and all rows if it is a table's, as `train` and `sweep` do."""
    config, _ = parse([f"--config={path}", *given])
    if "sweep" in config:
        read_sweep(config, load_variants(path))
    else:
        validate(config)


# What reads the options of a command, before any file; of the others test_docs.py knows the options.
READERS = {
    "analyze": lambda given: verbs.parse("analyze", given),
    "evaluate": lambda given: verbs.parse("evaluate", given),
    "geometry": lambda given: verbs.parse("geometry", given),
    "main": lambda given: resolve(*split_config(given)),
    "sweep": lambda given: resolve(*split_config(given)),
}


def understand(module: str, given: list[str]) -> None:
    """Reads a command's arguments as the command does, and does nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [module, *given])
        READERS.get(module.rpartition(".")[2], list)(given)


def test_every_command_parses():
    started = set(re.findall(r"simcse-jax ([\w.-]+)", TEXT))
    faults, found = [f"simcse-jax has no {name}" for name in started - set(COMMANDS)], list(commands(PAGE))
    for _, module, rest in found:
        try:
            understand(module, shlex.split(rest))
        except UserError as error:
            faults.append(f"{module}{rest}: {error}")
    assert len(found) > 40
    assert not faults, report(faults)


def test_every_recipe_resolves_and_every_function_and_field_exists():
    faults, found = [], sorted({*RECIPE.findall(TEXT), *GIVEN.findall(TEXT)})
    for path in found:
        try:
            resolve(path)
        except UserError as error:
            faults.append(str(error))
    assert not faults, report(faults)
    files = {f"ablations/{path.stem}" for path in (ROOT / "configs" / "ablations").glob("*.py")}
    assert {path.partition(":")[0] for path in found if path.startswith("ablations/")} == files
    names = {span.partition("=")[0] for span in SPANS.findall(TEXT)}
    names = {name for name in names if FUNCTION.fullmatch(name) and not name.endswith(FILES)}
    faults = [name for name in sorted(names) if name not in FIELDS and not is_function(name)]
    assert len(names) > 25
    assert not faults, report(faults)


def is_function(name: str) -> bool:
    """Whether the package has a module and in it a function of this name: `objectives.info_nce.info_nce`."""
    module, _, function = name.rpartition(".")
    if not ROOT.joinpath("simcse_jax", *module.split(".")).with_suffix(".py").is_file():
        return False
    return callable(getattr(importlib.import_module(f"simcse_jax.{module}"), function, None))
