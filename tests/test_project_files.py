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


@pytest.mark.parametrize(
    ("schema", "files"),
    [("github-workflows", WORKFLOWS), ("citation-file-format", [ROOT / "CITATION.cff"])],
    ids=["workflows", "citation"],
)
def test_files_are_valid_by_their_schema(schema, files):
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema is not installed: pip install -r requirements-dev.txt")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert files and done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_runs_make_s_targets_on_the_versions_that_the_package_names():
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


def test_the_newest_python_is_a_released_one_that_starts_and_is_newer_than_the_given_one(tmp_path):
    def newest(given):
        (tmp_path / "given").write_text(f"#!/bin/sh\necho {given}\n")
        (tmp_path / "given").chmod(0o755)
        environment = {"PATH": f"{tmp_path}/path:/usr/bin:/bin", "PYENV_ROOT": str(tmp_path)}
        command = [ROOT / ".ci" / "newest", tmp_path / "given"]
        return subprocess.run(command, env=environment, capture_output=True, text=True).stdout.strip()

    starts = {"path/python3.1003": 127, "path/python3.1001": 0, "path/python3.1004-config": 0}
    starts |= {"versions/3.1002.5/bin/python3.1002": 0, "versions/3.1003.0a1/bin/python3.1003": 1}
    for name, code in starts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (tmp_path / name).chmod(0o755)
    assert newest(11) == str(tmp_path / "versions/3.1002.5/bin/python3.1002")
    assert newest(1002) == ""
    (tmp_path / "versions/3.1002.5/bin/python3.1002").unlink()
    assert newest(1000) == "python3.1001"


def test_the_hooks_are_the_tools_of_make_lint():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        tool = hook["entry"].split()[0].removeprefix(".venv/bin/")
        assert hook["language"] == "system" and re.search(rf"^{tool}\b", DEVELOPMENT, re.MULTILINE), hook
    assert [hook["id"] for hook in local["hooks"]] == ["ruff", "ruff-format", "mypy"]


def test_the_citation_has_the_version_the_licence_and_the_three_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["project"]["license"] == "Apache-2.0"
    assert citation["authors"] == PROJECT["project"]["authors"] == [{"name": "The simcse_jax authors"}]
    first = [paper["authors"][0]["family-names"] for paper in citation["references"]]
    assert first == ["Gao", "Xu", "Xiao"]


def test_the_changelog_has_the_version_after_what_is_unreleased():
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[:2] == ["Unreleased", __version__]


def test_a_release_is_tested_on_the_oldest_and_the_newest_python_before_it_is_published_without_a_token():
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    tests = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]["tests"]
    oldest, *_, newest = tests["strategy"]["matrix"]["python"]
    check = f"make PYTHON=python{oldest} NEWEST=python{newest} release-check"
    assert check in [step.get("run") for step in release["build"]["steps"]]
    publish = release["publish"]
    assert (publish["needs"], publish["permissions"]) == (["build", "tests"], {"id-token": "write"})
    assert [step["run"].split()[-1] for step in release["tests"]["steps"] if "run" in step] == [
        "test-all",
        "test-hostile",
    ]
    assert publish["if"] == "github.ref_type == 'tag'" and "password" not in str(publish)


def test_contributing_names_files_targets_and_constants_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:simcse_jax|tests|configs|docs)/[\w./]+)`", text)
    paths += [link for link in re.findall(r"\]\(([\w./]+)", text) if "://" not in link]
    made_up = {"simcse_jax/ROOM/x.py", "tests/ROOM/test_x.py"}
    assert len(paths) > 20
    assert [path for path in paths if path not in made_up and not (ROOT / path).exists()] == []
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in re.findall(r"`?make ([\w-]+)", text))
    code = "".join(path.read_text() for path in [*ROOT.glob("simcse_jax/**/*.py"), *ROOT.glob("tests/**/*.py")])
    for name in re.findall(r"`([A-Z_]{4,})`", text):
        assert re.search(rf"^{name}\b", code, re.MULTILINE), name
