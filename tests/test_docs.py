"""The README and the pages of docs/ against the project: links, commands, options, fields, files and code."""

import argparse
import ast
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT
from support.pages import PAGES, Parsed, commands, report, source_of, stop_in_parser, text_of

from simcse_jax.commands import verbs
from simcse_jax.config.fields import FIELDS, SECTIONS
from simcse_jax.config.flags import FOLDERS, SHORT
from simcse_jax.errors import UserError
from simcse_jax.simcse import SimCSE
from simcse_jax.training.sweeps.variants import sweep_defaults

pytestmark = pytest.mark.docs
OPTION = re.compile(r"(?<![\w-])--([a-z][\w-]*)")  # "config" of --config.seed
FIELD = re.compile(r"--config\.([a-z][\w.]*[a-z_])")
SWEEP = {f"sweep.{name}" for name in sweep_defaults("", "", ("stsb_dev",), baseline="")}
KNOWN_FIELDS = {*FIELDS, *SWEEP}
FLAGS = {  # besides a parser's options
    "main": {"config", *SHORT, *FOLDERS, "dry-run"},
    "tune": {"config", *SHORT, "workdir", "dry-run"},
    "sweep": {"config", "over", *SHORT, "workdir"},
    "search": {"embeddings", "codes"},  # of `search build`
}
OTHERS = {  # options of other programs that the pages name: of sbatch, pip, TensorBoard, mlflow, XLA, Ray, grep, …
    *("nodes", "gpus-per-node", "ntasks-per-node", "no-deps", "wheel-dir", "logdir", "backend-store-uri", "include"),
    *("xla_gpu_enable_triton_gemm", "dry-run", "head", "mode", "version"),
}


@functools.cache
def options_of(module: str) -> frozenset[str]:
    """The options of a command's parser, by the parser that its `main` makes."""
    name = module.rpartition(".")[2]
    if name in ("main", "tune", "sweep"):
        return frozenset({*FLAGS[name], "help"})
    if module.startswith("simcse_jax.commands.") and source_of(module):
        command = verbs.app(name.replace("_", "-"))
        apps = [command, *(command[part] for part in command if not part.startswith("-"))]
        known = {text for app in apps for argument in app.assemble_argument_collection() for text in argument.names}
        return frozenset({text.lstrip("-") for text in known} | {"help"})
    if not source_of(module) or (module.startswith("benchmarks.") and "Parser(" not in source_of(module)):
        return frozenset()
    made = []

    def catch(self: argparse.ArgumentParser, *args: object, **kwargs: object) -> None:
        made.append(self)
        raise Parsed

    stop_in_parser(module, [], "parse_known_args", catch)
    strings = {string for action in made[0]._actions for string in action.option_strings}
    return frozenset({string.lstrip("-") for string in strings} | FLAGS.get(name, set()))


def heading_anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_link_leads_to_a_file_or_a_heading():
    faults, found = [], 0
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if "://" in target:
                continue
            found += 1
            file, _, anchor = target.partition("#")
            linked = (page.parent / file).resolve() if file else page
            picture = linked.suffix == ".png"  # its anchor says on which pages it is shown
            if not linked.exists() or (anchor and not picture and anchor not in heading_anchors(linked)):
                faults.append(f"{page.relative_to(ROOT)}: {target}")
    assert found > 30
    assert not faults, report(faults)


def test_every_command_exists_and_every_option_is_one_of_a_command_on_its_page():
    faults = [f"{page.relative_to(ROOT)}: {module}" for page, module, _ in commands() if not source_of(module)]
    assert len(list(commands())) > 40
    for page, module, rest in commands():
        for option in sorted(set(OPTION.findall(rest)) - options_of(module)):
            faults.append(f"{page.relative_to(ROOT)}: {module} has no --{option}")
    for page in PAGES:
        known = OTHERS.union(*(options_of(module) for where, module, _ in commands() if where == page))
        for option in OPTION.findall(text_of(page)):
            if option not in known and not option.startswith("xla_"):
                faults.append(f"{page.relative_to(ROOT)}: --{option}")
    assert not faults, report(faults)


def test_every_field_of_a_config_and_every_file_that_a_page_names_exists():
    faults, found, files = [], 0, 0
    folders = "simcse_jax|tests|benchmarks|configs|launch|examples|docs"
    for page in PAGES:
        text = text_of(page)
        named = re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)(?:=[^`]*)?`", text)
        fields = [*FIELD.findall(text), *(name for name in named if looks_like_a_field(name))]
        found += len(fields)
        faults += [f"{page.relative_to(ROOT)}: {field}" for field in fields if field not in KNOWN_FIELDS]
        for name in re.findall(rf"(?<![\w/.])((?:{folders})/[\w./-]*\w)", text):
            if re.search("[A-Z]{3}", name) and not name.endswith(".md"):
                continue  # a placeholder
            files += 1
            if not (ROOT / name).exists():
                faults.append(f"{page.relative_to(ROOT)}: {name}")
    assert found > 60 and files > 60
    assert not faults, report(faults)


def looks_like_a_field(name: str) -> bool:
    """Whether a name with dots begins like a field, and is no section, file, module or property."""
    parts = name.split(".")
    other = name in {*SECTIONS, "model.dimension"} or parts[-1] in {"py", "safetensors", "parquet"}
    module = ROOT.joinpath("simcse_jax", *parts[:2]).with_suffix(".py")
    return parts[0] in {*SECTIONS, "sweep"} and not other and not module.is_file()


def test_the_python_on_the_pages_uses_names_and_arguments_that_exist():
    faults, found = [], 0
    for page in PAGES:
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            if "import" not in block:
                continue  # lines to be added to a file
            wrong = list(unknown_names(ast.parse(block)))
            found += 1
            faults += [f"{page.relative_to(ROOT)}: {name}" for name in wrong]
    assert found > 3
    assert not faults, report(faults)


def unknown_names(code: ast.AST) -> Iterator[str]:
    """The names of the package, and the methods and arguments of `model`, a `SimCSE`, that do not exist."""
    for node in ast.walk(code):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("simcse_jax"):
            try:
                module = importlib.import_module(node.module)
            except UserError:  # an adapter, where its program is not installed
                continue
            for alias in node.names:
                submodule = ROOT.joinpath(*node.module.split("."), alias.name).with_suffix(".py")
                if not hasattr(module, alias.name) and not submodule.is_file():
                    yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Call):
            function, name = SimCSE, "SimCSE"
            if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "model":
                name = node.func.attr
                function = getattr(SimCSE, name, None)
            elif ast.unparse(node.func) != "SimCSE":
                continue
            known = inspect.signature(function).parameters if function else {}
            yield from (f"{name}({keyword.arg}=)" for keyword in node.keywords if keyword.arg not in known)
            if not function:
                yield f"model.{name}"
