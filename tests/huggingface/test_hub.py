"""Pushing to a hub and loading from it, against a hub of our own on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import ROOT, call, run, sentences
from support.hub_server import Hub

from simcse_jax.huggingface.hub import split_name
from simcse_jax.simcse import SimCSE

TOKEN = "hf_ours"


@pytest.fixture
def hub():
    with Hub() as server:
        server.tokens[TOKEN] = {"name": "ann", "role": "write", "orgs": ["lab"]}
        server.tokens["hf_reader"] = {"name": "ann", "role": "read"}
        server.tokens["hf_other"] = {"name": "bob", "role": "write"}
        yield server


@pytest.fixture
def environment(hub, tmp_path):
    """Of a user whose cache is empty and who is logged in nowhere."""
    return {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": "",
        "NO_PROXY": "127.0.0.1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }


def publish(hub: Hub, folder: Path, name: str = "ann/tiny", private: bool = False) -> str:
    """Puts a folder on the hub without a push."""
    hub.create(name, private)
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return hub.commit(name, "main", files)


def python(code: str, environment: dict[str, str], *args: object) -> subprocess.CompletedProcess:
    """Runs a few lines as a command: exit code 2 and one line for a mistake of the user's."""
    lines = ["import sys", "from simcse_jax.command_line import run_command", "from simcse_jax.huggingface import hub"]
    code = "\n".join([*lines, "def main():", code])
    command = [sys.executable, "-c", code + "\nrun_command(main)", *map(str, args)]
    variables = {**os.environ, **environment}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120)


def fetch(environment: dict[str, str], name: str) -> subprocess.CompletedProcess:
    return python(
        "    print(hub.download(*hub.split_name(sys.argv[1]), ['*.json', '*.safetensors']))", environment, name
    )


def check(environment: dict[str, str], name: str, private: bool = False, revision: str = "") -> str:
    """The complaint before a push, empty where there is none."""
    code = "    hub.check_push(sys.argv[1], sys.argv[2] == 'True', sys.argv[3] or None)"
    done = python(code, environment, name, private, revision)
    assert done.returncode == (2 if done.stderr else 0), done.stderr
    assert done.stderr.count("\n") <= 1
    return done.stderr


ENCODE = """
import sys
import numpy as np
from simcse_jax.simcse import SimCSE
np.save(sys.argv[2], SimCSE(sys.argv[1]).encode(sys.argv[3:]))
"""


def encode(environment: dict[str, str], name: str, output: Path) -> np.ndarray:
    """What a new process with that cache makes of sentences."""
    command = [sys.executable, "-c", ENCODE, name, str(output), *sentences(5)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.load(output)


def test_names_of_a_hub():
    assert split_name("bert-base-uncased") == ("bert-base-uncased", None)
    assert split_name("ann/tiny@v1.0") == ("ann/tiny", "v1.0")
    assert split_name("ann/tiny@refs/pr/3") == ("ann/tiny", "refs/pr/3")
    for name in ("a/b/c", "/tmp/x", "../up", "ann/tiny@", "ann/tiny@-x", "a b", ""):
        assert split_name(name) is None


def test_a_model_goes_to_the_hub_and_comes_back(hub, environment, trained, tmp_path):
    hub.create("ann/tiny")
    mine = environment | {"HF_TOKEN": TOKEN}
    args = ("--workdir", trained, "--output", tmp_path / "out", "--push-to-hub")
    done = run("export", *args, "ann/new", "--private", "--revision", "v1", env=mine)
    assert done.returncode == 0, done.stderr
    assert f"pushed: {hub.url}/ann/new/commit/" in done.stdout
    assert hub.repositories["ann/new"].private
    assert list(hub.files("ann/new")) == [".gitattributes"]  # the branch has it, the main one does not
    written = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert hub.files("ann/new", "v1").keys() == written | {".gitattributes"}
    assert hub.files("ann/new", "v1")["model.safetensors"] == (tmp_path / "out" / "model.safetensors").read_bytes()
    assert b'SimCSE("ann/new@v1")' in hub.files("ann/new", "v1")["README.md"]

    expected = SimCSE(str(trained)).encode(sentences(5))
    np.testing.assert_allclose(encode(mine, "ann/new@v1", tmp_path / "e.npy"), expected, atol=1e-6)
    served = len(hub.requests)
    assert fetch(mine | {"HF_HUB_OFFLINE": "1"}, "ann/new@v1").returncode == 0  # it is in the cache now
    assert len(hub.requests) == served


def test_what_is_not_to_be_had_is_told_in_a_line(hub, environment, exported, tmp_path):
    publish(hub, exported)
    publish(hub, exported, "ann/secret", private=True)
    hub.failing = "GET /api/models/ann/broken"
    complaints = {
        "ann/tiny@v9": "it has no revision v9",
        "ann/secret": "there is no such model, or it is private: check the name, and log in with `hf auth login`",
        "ann/nothing": "there is no such model, or it is private",
        "ann/broken": "the hub answers 500; try again later",
    }
    for name, complaint in complaints.items():
        done = fetch(environment, name)
        assert done.returncode == 2, done.stdout
        assert complaint in done.stderr and done.stderr.count("\n") == 1, done.stderr
    done = fetch(environment | {"HF_TOKEN": "hf_wrong"}, "ann/secret")
    assert "the token is not valid" in done.stderr, done.stderr
    done = fetch(environment | {"HF_ENDPOINT": "http://127.0.0.1:9"}, "ann/tiny")
    assert "the hub cannot be reached" in done.stderr, done.stderr
    done = fetch(environment | {"HF_HUB_OFFLINE": "1"}, "ann/tiny")
    assert "it is not in the cache, and HF_HUB_OFFLINE is set" in done.stderr, done.stderr
    assert not list((tmp_path / "hf").rglob("*.safetensors"))
    assert fetch(environment | {"HF_TOKEN": TOKEN}, "ann/secret").returncode == 0

    done = run("evaluate", "--model", "ann/tiny@v9", "--data", ROOT / "examples/everyday/dev.tsv", env=environment)
    assert done.returncode == 2
    assert done.stderr == (
        "error: ann/tiny@v9: no such folder, and not to be had from the hub: it has no revision v9\n"
    )


@pytest.mark.slow
def test_a_file_that_breaks_off_is_not_taken_for_a_model(hub, environment, exported, tmp_path):
    publish(hub, exported)
    hub.breaking = "GET /ann/tiny/resolve/.*/model.safetensors"
    done = fetch(environment, "ann/tiny")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert not list((tmp_path / "hf").rglob("model.safetensors"))
    done = fetch(environment | {"HF_HUB_OFFLINE": "1"}, "ann/tiny")  # what came is not the whole
    assert done.returncode == 2
    hub.breaking = None
    expected = SimCSE(str(exported)).encode(sentences(5))
    np.testing.assert_allclose(encode(environment, "ann/tiny", tmp_path / "e.npy"), expected, atol=1e-6)


def test_a_push_that_cannot_succeed_is_told_before_any_work(hub, environment):
    hub.create("ann/public")
    mine = environment | {"HF_TOKEN": TOKEN}
    assert "there is no token; log in" in check(environment, "ann/tiny")
    assert "the token is not valid" in check(environment | {"HF_TOKEN": "hf_wrong"}, "ann/tiny")
    assert "the token may only read" in check(environment | {"HF_TOKEN": "hf_reader"}, "ann/tiny")
    assert "the token is of ann, who may not push to bob; choose ann/NAME" in check(mine, "bob/tiny")
    assert "no name of a model" in check(mine, "ann/tiny/x")
    assert "no name of a model" in check(mine, "ann/ti ny")
    assert "must be OWNER/NAME" in check(mine, "tiny")
    assert "no name of a branch" in check(mine, "ann/tiny", revision="-x")
    assert "HF_HUB_OFFLINE is set" in check(mine | {"HF_HUB_OFFLINE": "1"}, "ann/tiny")
    assert "cannot be reached" in check(mine | {"HF_ENDPOINT": "http://127.0.0.1:9"}, "ann/tiny")
    assert "exists and is public" in check(mine, "ann/public", private=True)
    hub.failing = "GET /api/whoami-v2"
    assert "the hub answers 500" in check(mine, "ann/tiny")
    hub.failing = None
    assert check(mine, "lab/tiny", private=True) == check(mine, "ann/public") == ""
    assert list(hub.repositories) == ["ann/public"]  # a check changes nothing


def test_a_push_is_refused_before_the_export(hub, environment, trained, tmp_path):
    done = run("export", "--workdir", trained, "--output", tmp_path / "out", "--push-to-hub", "ann/x", env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --push-to-hub ann/x: there is no token")
    assert not (tmp_path / "out").exists() and not hub.repositories
    done = call("export", "--workdir", trained, "--output", tmp_path / "out", "--private")
    assert (done.returncode, done.stderr) == (
        2,
        "error: --private: has no use without --push-to-hub OWNER/NAME\n",
    )


@pytest.mark.parametrize("request_", ["POST /api/models/ann/new/commit", "PUT /lfs", "POST /api/repos/create"])
@pytest.mark.slow
def test_a_push_that_fails_changes_no_branch(hub, environment, exported, request_):
    hub.failing = request_
    code = "    from pathlib import Path\n    print(hub.push(Path(sys.argv[1]), 'ann/new', False, None))"
    done = python(code, environment | {"HF_TOKEN": TOKEN}, exported)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"--push-to-hub ann/new: the hub answers 500; try again later; the export is in {exported}" in done.stderr
    if "ann/new" in hub.repositories:
        assert list(hub.files("ann/new")) == [".gitattributes"]
    hub.failing = None
    assert python(code, environment | {"HF_TOKEN": TOKEN}, exported).returncode == 0
    assert "model.safetensors" in hub.files("ann/new")
