"""The site of the docs: what is made from the code for it (`docs/hooks.py`), and that its map has every page."""

import importlib.util
import re
from types import SimpleNamespace

import pytest
import yaml
from support import ROOT

from simcse_jax.__main__ import COMMANDS
from simcse_jax.config.fields import FIELDS
from simcse_jax.config.loss_fields import fields_of_objectives
from simcse_jax.objectives.registry import OBJECTIVES


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_has_its_options_names_are_in_the_reference_and_pages_in_the_navigation(hooks):
    page = hooks.commands()
    assert re.findall(r"^## (.+)", page, re.MULTILINE) == list(COMMANDS)
    options = {"search": "--top-k INT", "search build": "--embeddings STR", "demo": "--port INT"}
    for name, option in options.items():
        (section,) = re.findall(rf"^##+ {name}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
        assert f"* `{option}`: " in section
    assert "Sentences for each query. *[default: 5]*" in page
    assert "glove:FILE, the average of word vectors. **[required]**" in page
    assert "`unsup_bert:{base,large,mlm,large_mlm}`\n:   Unsupervised SimCSE" in page  # a recipe of `train`
    assert str(ROOT) not in page
    python = {page: re.findall(r"^::: (.+)$", text, re.MULTILINE) for page, text in hooks.python().items()}
    assert python["reference/simcse.md"] == ["simcse_jax.simcse.SimCSE"]
    assert {"simcse_jax.commands.api.train", "simcse_jax.commands.api.Run"} <= {*python["reference/train.md"]}
    names = python["reference/extending.md"]
    assert "simcse_jax.objectives.objective.Objective" in names and len(names) == len(set(names)) > 12

    def pages(entry):
        inside = entry.values() if isinstance(entry, dict) else entry
        return [entry] if isinstance(entry, str) else [page for one in inside for page in pages(one)]

    loader = type("Loader", (yaml.SafeLoader,), {})
    for tag in ("!ENV", "tag:yaml.org,2002:python/object/apply:pymdownx.slugs.slugify"):
        loader.add_constructor(tag, lambda *_: None)
    found = pages(yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), loader)["nav"])
    written = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert len(found) == len(set(found)) and written <= {*found}


def test_every_field_has_its_default_meaning_and_conditions_and_is_linked_from_the_pages(hooks):
    page = hooks.fields()
    named = re.findall(r"^`([a-z_.]+)(?: = .*)?`\{#(.*)\}$", page, re.MULTILINE)
    assert {one for one, _ in named} >= {*FIELDS} and all(one == anchor for one, anchor in named)
    assert {*fields_of_objectives(OBJECTIVES.values())} <= {one for one, _ in named}
    entries = {one.partition(" ")[0]: one for one in page.split("\n\n`")}
    assert entries["model.lora.alpha"] == (
        "model.lora.alpha = 16.0`{#model.lora.alpha}\n"
        ":   The products are multiplied by alpha / rank. *A number; above 0.* Only with `model.lora.rank`."
    )
    assert entries["objective.info_nce.temperature"].endswith("Only with `objective.info_nce.weight`.")
    assert "([guides/analysis.md](../guides/analysis.md))" in page
    page, config = SimpleNamespace(file=SimpleNamespace(src_uri="guides/x.md"), meta={}), SimpleNamespace(repo_url="")
    files = SimpleNamespace(get_file_from_path=lambda name: None)
    for text, expected in LINKED:
        assert hooks.on_page_markdown(text, page, config, files) == expected
    assert page.meta == {"search": {"boost": 10}, "hide": []}


LINKED = [
    ("`train.epochs=0` ends", "[`train.epochs=0`](../reference/fields.md#train.epochs) ends"),
    ("`sweep.seeds`, `train.no`", "[`sweep.seeds`](../reference/fields.md#sweep.seeds), `train.no`"),
    ("[`seed`](costs.md)", "[`seed`](costs.md)"),
    ("`seed`{#seed}", "`seed`{#seed}"),
    ("```\n`seed`\n```", "```\n`seed`\n```"),
    ("> [!NOTE]\n> One.\n> Two.\n\nThree.", "!!! note\n    One.\n    Two.\n\nThree."),
    ("`simcse-jax serve --help`", "[`simcse-jax serve --help`](../reference/commands.md#serve)"),
    ("`simcse-jax search build --help`", "[`simcse-jax search build --help`](../reference/commands.md#search-build)"),
]
