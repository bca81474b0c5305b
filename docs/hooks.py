"""What MkDocs adds to the pages: the reference, made from the code, and links to files outside of docs/."""

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from simcse_jax.__main__ import COMMANDS
from simcse_jax.commands import verbs
from simcse_jax.commands.command_line import EXIT_CODES
from simcse_jax.config.fields import FIELDS, SECTIONS
from simcse_jax.errors import show
from simcse_jax.field import Field
from simcse_jax.training.sweeps.variants import FIELDS as OF_SWEEPS

DOCS = Path(__file__).parent
ROOT = DOCS.parent

PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
IMPORT = re.compile(r"^from (simcse_jax\.[\w.]+) import (.+)$", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)|(`+.*?`+)(?!\{)")
HELP = re.compile(r"`simcse-jax ([a-z -]+) --help`")
ALERT = re.compile(r"^> \[!(\w+)\]\n((?:>.*\n?)+)", re.MULTILINE)  # GitHub's admonitions
BOOSTS = {"start": 10, "guides": 10, "reference/fields": 10, "reference": 4, "background/results": 0.001}  # in a search


def on_files(files: Any, config: Any) -> Any:
    """Adds the generated pages, and those of the repository's root."""
    from mkdocs.structure.files import File

    made = {"reference/commands.md": commands(), "reference/fields.md": fields(), **python()}
    made |= {page: (ROOT / name).read_text(encoding="utf-8") for name, page in PAGES.items()}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links to files outside of docs/ lead to the repository, and one named `page.md` has the page's title.

    Names of fields, and `simcse-jax COMMAND --help`, become links to the reference, GitHub's alerts admonitions.
    """
    uri = page.file.src_uri
    page.meta["search"] = {"boost": next((boost for start, boost in BOOSTS.items() if uri.startswith(start)), 1)}
    page.meta["hide"] = {"index.md": ["navigation", "toc"], "gallery.md": ["navigation"]}.get(uri, [])
    if config.repo_url:
        markdown = markdown.replace("this repository", f"[this repository]({config.repo_url})")
    markdown = ALERT.sub(
        lambda found: f"!!! {found[1].lower()}\n{re.sub('^> ?', '    ', found[2], flags=re.M)}", markdown
    )
    folder = ROOT if uri in PAGES.values() else (DOCS / uri).parent

    def link(found: re.Match) -> str:
        if entry := of_reference(found[4] or ""):
            return f"[{found[4]}]({os.path.relpath(entry, Path(uri).parent)})"
        label, target, anchor = found[1], found[2], found[3] or ""
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]  # also code
        name = Path(os.path.normpath(folder / target)).relative_to(ROOT).as_posix()
        name = "docs/index.md" if name == "README.md" else f"docs/{PAGES[name]}" if name in PAGES else name
        if not name.startswith("docs/") or (ROOT / name).is_dir():
            return f"[{label}]({config.repo_url}/blob/main/{name}{anchor})" if config.repo_url else label
        file = files.get_file_from_path(name.removeprefix("docs/"))
        if file and re.fullmatch(r"[\w/]+\.md", label):
            label = re.search(r"^# (.+)$", file.content_string, re.MULTILINE)[1]
        return f"[{label}]({os.path.relpath(DOCS / name.removeprefix('docs/'), (DOCS / uri).parent)}{anchor})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts)


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """The search does not read the tables of results."""
    return html.replace("<table>", "<table data-search-exclude>") if "/results/" in page.file.src_uri else html


def of_reference(code: str) -> str:
    """Where the reference says what some code on a page names: a field, also with a value, or a command's help."""
    if command := HELP.fullmatch(code):
        return f"reference/commands.md#{command[1].replace(' ', '-')}"
    name = code.strip("`").partition("=")[0]
    return f"reference/fields.md#{name}" if name in {**FIELDS, **OF_SWEEPS} else ""


def commands() -> str:
    """The page of all commands with their options, from their functions."""
    codes = "".join(f"\n| {code} | {plain(meaning)} |" for code, meaning in EXIT_CODES.items())
    parts = [
        "# Commands",
        "Each is also `python -m simcse_jax COMMAND`, and a function of Python that takes the options as arguments: "
        "`from simcse_jax import evaluate`. It ends with one of these codes:",
    ]
    parts += [f"| exit code | |\n| --- | --- |{codes}"]
    for name, about in COMMANDS.items():
        parts += [f"## {name}", f"**{about[0].upper()}{about[1:]}.**", *of_command(name)]
    return "\n\n".join(parts)


def of_command(name: str) -> Iterator[str]:
    """A command's description and its options; of one that has fields in place of them, its help without them."""
    if name not in ("train", "tune", "sweep"):
        function = verbs.import_verb(name)
        yield options_of(function)
        for part, other in getattr(sys.modules[function.__module__], "SUBCOMMANDS", {}).items():
            yield f"### {name} {part}\n\n{options_of(other)}"
        return
    shown = io.StringIO()
    with mock.patch.object(sys, "argv", [f"simcse-jax {name}", "--help"]), contextlib.redirect_stdout(shown):
        verbs.make_main(name)()
    usage, about, *blocks = shown.getvalue().replace(f"{ROOT}/", "").split("\n\n")
    yield f"`{usage.removeprefix('usage: ')}`\n\n{plain(about)}\n\n[All fields](fields.md)"
    for block in blocks:
        title, *entries = re.split(r"\n  (?! )", block)
        if title.startswith(("flags", "recipes")):
            yield plain(title)
            yield from (entry(name, plain(text)) for name, _, text in (one.partition("\n") for one in entries))


def options_of(function: Callable[..., Any]) -> str:
    """What a command does, and its options."""
    return verbs.make_app(function, "x").generate_docs(output_format="markdown").split("```")[2].strip()


def fields() -> str:
    """The page of all fields of a run and of a sweep."""
    parts = ["# Fields", "`--config.FIELD=VALUE` sets one on the command line; `train(…)` takes them as arguments."]
    sections = {"": "Of the whole run.", **SECTIONS, "sweep": "Of a table's runs: `simcse-jax sweep`."}
    for section, about in sections.items():
        inside = {name: one for name, one in {**FIELDS, **OF_SWEEPS}.items() if name.rpartition(".")[0] == section}
        parts += [f"## {section or 'seed'}", plain(about), *(of_field(name, one) for name, one in inside.items())]
    return "\n\n".join(parts)


def of_field(name: str, field: Field) -> str:
    """A field's default, meaning, bounds, and what decides whether it has an effect."""
    default = show(field.default)
    text = f"{plain(field.meaning)} *{plain(field.kind)}.*"
    if field.only:
        text += f" Only with `{field.only}`."
    return entry(name, text, f" = {default}" if default != "" else "", name)


def python() -> dict[str, str]:
    """The pages of Python's names, by their paths: the classes, and what guides and examples import to extend them."""
    pages = {
        "train": ("train and Run", ["commands.api.train", "commands.api.Run", "commands.api.sweep"]),
        "simcse": ("SimCSE", ["simcse.SimCSE"]),
        "cross_encoder": ("CrossEncoder", ["encoding.cross_encoder.CrossEncoder"]),
    }
    shown = [*DOCS.glob("guides/*.md"), *ROOT.glob("examples/*.py")]
    imports = IMPORT.findall("".join(page.read_text(encoding="utf-8") for page in shown))
    used = {f"{module}.{name.strip()}" for module, names in imports for name in names.split(",")}
    used.add("simcse_jax.objectives.embedded.Embedded")  # what a loss gets
    pages["extending"] = ("Extension points", sorted(name.removeprefix("simcse_jax.") for name in used))
    single = "\n    options: { heading_level: 1 }"  # the class is the page
    return {
        f"reference/{page}.md": f"::: simcse_jax.{names[0]}{single}"
        if len(names) == 1
        else "\n\n".join([f"# {title}", *(f"::: simcse_jax.{name}" for name in names)])
        for page, (title, names) in pages.items()
    }


def entry(name: str, text: str, rest: str = "", anchor: str = "") -> str:
    """An entry of a list of definitions."""
    return f"`{name}{rest}`{f'{{#{anchor}}}' if anchor else ''}\n:   {text or '–'}"


def plain(text: str) -> str:
    """A help text as Markdown: what is no markup there is none here, and pages are links."""
    parts = re.split("(`[^`]*`)", " ".join(text.split()))
    text = "".join(one if one[:1] == "`" else re.sub(r"([*_<\[\\])", r"\\\1", one) for one in parts)
    return re.sub(r"docs/([\w/\\]+)\.md", lambda page: f"[{page[1]}.md](../{page[1]}.md)".replace("\\", ""), text)
