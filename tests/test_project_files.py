"""The files around the code: their schemas, and that they agree with the code."""

import importlib.util
import re
import subprocess
import sys
import tomllib

import pytest
import yaml
from support import ROOT

from simcse_jax import __version__

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DEVELOPMENT = (ROOT / "requirements-dev.txt").read_text()
SCHEMAS = {"github-workflows": WORKFLOWS, "citation-file-format": [ROOT / "CITATION.cff"]}


@pytest.mark.parametrize(("schema", "files"), SCHEMAS.items(), ids=SCHEMAS)
def test_files_are_valid_by_their_schema(schema, files):
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema is not installed: pip install -r requirements-dev.txt")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert files and done.returncode == 0, done.stdout + done.stderr


def test_workflows_run_make_s_targets_on_the_versions_of_the_package_before_a_release_without_a_token():
    jobs = {file.stem: yaml.safe_load(file.read_text())["jobs"] for file in WORKFLOWS}
    versions = jobs["tests"]["tests"]["strategy"]["matrix"]["python"]
    prefix = "Programming Language :: Python :: "
    classified = {name.removeprefix(prefix) for name in PROJECT["project"]["classifiers"] if name.startswith(prefix)}
    assert set(versions) == classified - {"3"}
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"
    steps = [step for each in jobs.values() for job in each.values() for step in job["steps"]]
    runs = [step["run"] for step in steps if "run" in step]
    targets = {run.split()[-1] for run in runs if run.startswith("make ")}
    makefile = (ROOT / "Makefile").read_text()
    tested = {"check", "test", "test-all", "test-exact", "test-benchmarks", "test-hostile", "test-oldest", "test-tpu"}
    assert targets == tested | {"docs", "release-check"}
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    release, (oldest, *_, newest) = jobs["release"], versions
    check = f"make PYTHON=python{oldest} NEWEST=python{newest} release-check"
    assert check in [step.get("run") for step in release["build"]["steps"]]
    publish = release["publish"]
    assert (publish["needs"], publish["permissions"]) == (["build", "tests"], {"id-token": "write"})
    targets = [step["run"].split()[-1] for step in release["tests"]["steps"] if "run" in step]
    assert targets == ["test-all", "test-hostile"]
    assert publish["if"] == "github.ref_type == 'tag'" and "password" not in str(publish)


def test_the_hooks_are_the_tools_of_make_lint_and_contributing_names_what_exists():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        tool = hook["entry"].split()[0].removeprefix(".venv/bin/")
        assert hook["language"] == "system" and re.search(rf"^{tool}\b", DEVELOPMENT, re.MULTILINE), hook
    assert [hook["id"] for hook in local["hooks"]] == ["ruff", "ruff-format", "mypy"]
    text = (ROOT / "CONTRIBUTING.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in re.findall(r"`?make ([\w-]+)", text))
    code = "".join(path.read_text() for path in [*ROOT.glob("simcse_jax/**/*.py"), *ROOT.glob("tests/**/*.py")])
    for name in re.findall(r"`([A-Z_]{4,})`", text):
        assert re.search(rf"^{name}\b", code, re.MULTILINE), name


def test_citation_and_changelog_have_the_version_the_licence_and_the_three_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["project"]["license"] == "Apache-2.0"
    assert citation["authors"] == PROJECT["project"]["authors"] == [{"name": "The simcse_jax authors"}]
    assert [paper["authors"][0]["family-names"] for paper in citation["references"]] == ["Gao", "Xu", "Xiao"]
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:2] == ["Unreleased", __version__]
