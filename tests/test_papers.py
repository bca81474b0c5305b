"""docs/background/papers.md against papers and code: every numbered item is there, and what the page names works."""

import importlib
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType

import pytest
from support import ROOT
from support.pages import Parsed, commands, report, source_of, stop_in_parser

from simcse_jax.__main__ import COMMANDS
from simcse_jax.commands.command_line import module_of, parse_model
from simcse_jax.config.checks import validate
from simcse_jax.config.fields import FIELDS
from simcse_jax.config.flags import parse, split_config
from simcse_jax.data.building.builders import BUILDERS
from simcse_jax.errors import UserError
from simcse_jax.evaluation.tasks import POSTPROCESSING
from simcse_jax.host.names import split_label, split_step
from simcse_jax.training.sweeps.variants import load_variants, read_sweep

pytestmark = pytest.mark.slow
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
# Functions of commands that check more than a parser does, without a file.
READERS = {"analyze": "read_arguments", "evaluate": "parse", "geometry": "read_arguments"}
SPANS = re.compile(r"(?<!`)`([^`]+)`(?!`)")
FUNCTION = re.compile(r"[a-z_]+(?:\.\w+)+")
FILES = (".py", ".txt", ".csv", ".gz", ".json", ".jsonl", ".bz2")
RECIPE = re.compile(r"ablations/\w+(?::\w+)?")
GIVEN = re.compile(r"--config ([\w/:]+)")
TEXT = PAGE.read_text(encoding="utf-8")


def rows(paper: str) -> Iterator[dict[str, str]]:
    """The rows of a paper's tables, cells by the headings of their columns."""
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


@pytest.mark.parametrize(("paper", "kind"), [(paper, kind) for paper, kinds in ITEMS.items() for kind in kinds])
def test_every_numbered_item_has_its_row(paper, kind):
    found, expected = numbers(paper, kind), ITEMS[paper][kind].split()
    assert sorted(set(found)) == sorted(expected)
    assert kind == "Appendix" or len(found) == len(expected), "an item has two rows"


@pytest.mark.parametrize("paper", CLAIMS)
def test_the_claims_of_sections_are_there(paper):
    assert CLAIMS[paper] <= set(numbers(paper, "Section"))


def test_a_row_says_where_its_result_is_or_that_there_is_none():
    said = [(row[""], row["here"]) for paper in ITEMS for row in rows(paper) if "here" in row]
    assert len(said) > 30
    assert not [f"{item}: {here}" for item, here in said if "](" not in here and here not in HERE]


def test_the_page_says_where_everything_that_is_needed_comes_from():
    explained = {word for row in rows("What the commands need") for word in row["needs"].split(", ")}
    needed = {word for paper in ITEMS for row in rows(paper) for word in re.split("[,;] ", row.get("needs", ""))}
    assert {word for word in needed if word not in ("", "–") and not word.startswith("as ")} == explained


def test_every_table_in_the_results_is_linked():
    recipes = tuple(path.stem for path in (ROOT / "configs" / "ablations").glob("*.py"))
    tables = {path.name for path in PAGE.with_name("results").glob("*.md") if path.stem.startswith(recipes)}
    assert tables, "results/ has tables"
    assert tables <= set(re.findall(r"\]\(results/(\w+\.md)", TEXT)), "the row of its item in papers.md links each"


def test_every_builder_of_a_data_file_is_named_with_its_file():
    lines = [" ".join(row.values()) for row in rows("What the commands need")]
    for name, builder in BUILDERS.items():
        assert [line for line in lines if f"build-data {name} --" in line and f"`{builder.output}`" in line], name


def resolve(path: str, given: list[str]) -> None:
    """Reads a recipe with fields, and all rows if it is a table's, as `train` and `sweep` do.

    Raises:
      UserError: for a recipe, variant, field or row that is wrong.
    """
    config, _ = parse([f"--config={path}", "--workdir=w", *given])
    if "sweep" in config:
        read_sweep(config, load_variants(path))
    else:
        validate(config)


def understand(module: str, given: list[str]) -> None:
    """Reads a command's arguments as the command does, and does nothing else.

    Raises:
      UserError: for arguments that the command refuses.
    """
    if module in ("simcse_jax.main", "simcse_jax.commands.sweep"):
        path, others = split_config(given)
        workdir = [one for one in others if one.startswith("--workdir")]
        if not workdir:
            raise UserError("--workdir is missing")
        at = others.index(workdir[0])
        resolve(path, others[:at] + others[at + (1 if "=" in workdir[0] else 2) :])
        return
    if not source_of(module):
        raise UserError("there is no such command")
    wrong = []

    def read(self, args=None, namespace=None):
        try:
            found, unknown = self.parse_known_args(args, namespace)
        except UserError as error:
            wrong.append(error)
            raise Parsed from None
        if unknown:
            wrong.append(UserError(f"unknown argument {unknown[0]}"))
        given = (getattr(found, option, None) or [] for option in ("model", "models", "compare", "pair"))
        wrong.extend(UserError(f"{name}: not NAME@LAYERS@POOLER") for name in flat(given) if not is_model(name))
        raise Parsed

    stop_in_parser(module, given, "parse_args", read)
    if wrong:
        raise wrong[0]
    if reader := READERS.get(module.rpartition(".")[2]):
        with_checks(importlib.import_module(module), reader, given)


def with_checks(command: ModuleType, reader: str, given: list[str]) -> None:
    """Runs a command until its function `reader` has checked the options."""
    original = getattr(command, reader)

    def read(*args):
        original(*args)
        raise Parsed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [command.__name__, *given])
        patch.setattr(command, reader, read)
        with pytest.raises(Parsed):
            command.main()


def flat(names: Iterable) -> Iterator[str]:
    """The strings in lists of lists."""
    for one in names:
        yield from [one] if isinstance(one, str) else flat(one)


def is_model(name: str) -> bool:
    """Whether all that follows the first @ is understood: a step, layers, a pooler, a post-processing; labels aside."""
    name, _ = split_label(name)
    return "@" not in split_step(parse_model(name, POSTPROCESSING).name).name


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


def test_every_recipe_resolves():
    faults, found = [], sorted({*RECIPE.findall(TEXT), *GIVEN.findall(TEXT)})
    for path in found:
        try:
            resolve(path, [])
        except UserError as error:
            faults.append(str(error))
    assert not faults, report(faults)
    files = {f"ablations/{path.stem}" for path in (ROOT / "configs" / "ablations").glob("*.py")}
    assert {path.partition(":")[0] for path in found if path.startswith("ablations/")} == files


def test_every_function_and_field_exists():
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


@pytest.mark.parametrize(
    ("command", "given", "message"),
    [
        ("sweep", "--config ablations/simcse_table99 --workdir w", "no such config"),
        ("sweep", "--config ablations/simcse_table6:nonsense --workdir w", "no variant 'nonsense'"),
        ("sweep", "--config ablations/simcse_table3", "--workdir is missing"),
        ("sweep", "--config ablations/simcse_table3 --workdir w --config.sweep.only=0.11", "no variant '0.11'"),
        ("train", "--config unsup_bert --workdir w --config.model.poler=avg", "model.pooler"),
        ("train", "--config unsup_bert --workdir w --config.model.pooler=middle", "middle"),
        ("geometry", "--models a --data d", "--output"),
        ("geometry", "--models a@avg_middle --data d --output o", "avg_middle"),
        ("geometry", "--models a --panels one two --data d --output o", "--panels"),
        ("geometry", "--models a@whitening --data d --output o", "--postprocess-data"),
        ("analyze", "--modell a --output o", "--modell"),
        ("analyze", "--models a --runs b --data d --output o", "--runs"),
        ("evaluate", "--model m --data d --split all", "--split"),
    ],
)
def test_what_is_wrong_in_a_command_is_noticed(command, given, message):
    with pytest.raises(UserError, match=message):
        understand(module_of(command), shlex.split(given))
