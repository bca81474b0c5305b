"""Pushing to a hub and loading from it, against our own hub on this machine."""

import json
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
    """The environment of a user with an empty cache who is not logged in."""
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


CALLS = """
import contextlib, io, json, os, sys, time, types
from pathlib import Path
import huggingface_hub.utils._http
soon = {"sleep": lambda seconds: time.sleep(seconds / 50)}  # before it tries again
huggingface_hub.utils._http.time = types.SimpleNamespace(**vars(time) | soon)
from simcse_jax.commands.command_line import run_command
from simcse_jax.huggingface import hub
done = []
for token, *args in json.loads(sys.argv[1]):
    os.environ["HF_TOKEN"] = token
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            run_command(lambda: CODE)
        except SystemExit as end:
            done.append((args, end.code, out.getvalue(), err.getvalue()))
print(json.dumps(done))
"""
FETCH = "print(hub.download(*hub.split_name(args[0]), ['*.json', '*.safetensors']))"
CHECK = "hub.check_push(*args)"
PUSH = "print(hub.push(Path(args[0]), 'ann/new', False, None))"


def python(code: str, environment: dict[str, str], *calls: tuple) -> list[subprocess.CompletedProcess]:
    """Runs `code` as a command for each (token, *args) of `calls`, all in one new process."""
    command = [sys.executable, "-c", CALLS.replace("CODE", code), json.dumps(calls, default=str)]
    variables = {**os.environ, **environment}
    whole = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=120)
    assert (whole.returncode, whole.stderr) == (0, "")
    return [subprocess.CompletedProcess(*done) for done in json.loads(whole.stdout)]


def fetch(environment: dict[str, str], name: str, token: str = "") -> subprocess.CompletedProcess:
    return python(FETCH, environment, (token, name))[0]


def check(environment: dict[str, str], *calls: tuple) -> list[str]:
    """The complaints before pushes (token, name, private, revision); empty for a push that can succeed."""
    complaints = []
    for done in python(CHECK, environment, *calls):
        assert done.returncode == (2 if done.stderr else 0), done.stderr
        assert done.stderr.count("\n") <= 1
        complaints.append(done.stderr)
    return complaints


ENCODE = """
import sys
import numpy as np
from simcse_jax.simcse import SimCSE
np.save(sys.argv[2], SimCSE(sys.argv[1]).encode(sys.argv[3:]))
"""


def encode(environment: dict[str, str], name: str, output: Path) -> np.ndarray:
    """The embeddings from a new process with that cache."""
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
    assert list(hub.files("ann/new")) == [".gitattributes"]  # only the branch has it
    written = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert hub.files("ann/new", "v1").keys() == written | {".gitattributes"}
    assert hub.files("ann/new", "v1")["model.safetensors"] == (tmp_path / "out" / "model.safetensors").read_bytes()
    assert b'SimCSE("ann/new@v1")' in hub.files("ann/new", "v1")["README.md"]

    expected = SimCSE(str(trained)).encode(sentences(5))
    np.testing.assert_allclose(encode(mine, "ann/new@v1", tmp_path / "e.npy"), expected, atol=1e-6)
    served = len(hub.requests)
    assert fetch(environment | {"HF_HUB_OFFLINE": "1"}, "ann/new@v1", TOKEN).returncode == 0  # it is in the cache now
    assert len(hub.requests) == served


def test_failed_downloads_are_reported_in_one_line(hub, environment, exported, tmp_path):
    publish(hub, exported)
    publish(hub, exported, "ann/secret", private=True)
    hub.failing = "GET /api/models/ann/broken"
    complaints = {
        "ann/tiny@v9": "it has no revision v9",
        "ann/secret": "there is no such model, or it is private: check the name, and log in with `hf auth login`",
        "ann/nothing": "there is no such model, or it is private",
        "ann/broken": "the hub answered with status 500; try again later",
    }
    *found, wrong = python(FETCH, environment, *[("", name) for name in complaints], ("hf_wrong", "ann/secret"))
    for done, complaint in zip(found, complaints.values(), strict=True):
        assert done.returncode == 2, done.stdout
        assert complaint in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert "the token is not valid" in wrong.stderr, wrong.stderr
    done = fetch(environment | {"HF_ENDPOINT": "http://127.0.0.1:9"}, "ann/tiny")
    assert "the hub cannot be reached" in done.stderr, done.stderr
    done = fetch(environment | {"HF_HUB_OFFLINE": "1"}, "ann/tiny")
    assert "it is not in the cache, and HF_HUB_OFFLINE is set" in done.stderr, done.stderr
    assert not list((tmp_path / "hf").rglob("*.safetensors"))
    assert fetch(environment, "ann/secret", TOKEN).returncode == 0

    done = run("evaluate", "--model", "ann/tiny@v9", "--data", ROOT / "examples/everyday/dev.tsv", env=environment)
    assert done.returncode == 2
    assert done.stderr == (
        "error: ann/tiny@v9: no such folder, and the download from the hub failed: it has no revision v9\n"
    )


@pytest.mark.slow
def test_a_partial_file_is_not_used(hub, environment, exported, tmp_path):
    publish(hub, exported)
    hub.breaking = "GET /ann/tiny/resolve/.*/model.safetensors"
    done = fetch(environment, "ann/tiny")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert not list((tmp_path / "hf").rglob("model.safetensors"))
    done = fetch(environment | {"HF_HUB_OFFLINE": "1"}, "ann/tiny")  # the cache has a part only
    assert done.returncode == 2
    hub.breaking = None
    expected = SimCSE(str(exported)).encode(sentences(5))
    np.testing.assert_allclose(encode(environment, "ann/tiny", tmp_path / "e.npy"), expected, atol=1e-6)


def test_a_push_that_cannot_succeed_is_refused_before_any_work(hub, environment):
    hub.create("ann/public")
    no_token, wrong, reader, other, deep, blank, bare, branch, public, private, same = check(
        environment,
        ("", "ann/tiny", False, None),
        ("hf_wrong", "ann/tiny", False, None),
        ("hf_reader", "ann/tiny", False, None),
        (TOKEN, "bob/tiny", False, None),
        (TOKEN, "ann/tiny/x", False, None),
        (TOKEN, "ann/ti ny", False, None),
        (TOKEN, "tiny", False, None),
        (TOKEN, "ann/tiny", False, "-x"),
        (TOKEN, "ann/public", True, None),
        (TOKEN, "lab/tiny", True, None),
        (TOKEN, "ann/public", False, None),
    )
    assert "there is no token; log in" in no_token
    assert "the token is not valid" in wrong
    assert "the token is read-only" in reader
    assert "the token belongs to ann, who may not push to bob; use ann/NAME" in other
    assert "not a valid model name" in deep
    assert "not a valid model name" in blank
    assert "must be OWNER/NAME" in bare
    assert "not a valid branch name" in branch
    assert "exists and is public" in public
    assert private == same == ""
    mine = (TOKEN, "ann/tiny", False, None)
    assert "HF_HUB_OFFLINE is set" in check(environment | {"HF_HUB_OFFLINE": "1"}, mine)[0]
    assert "cannot be reached" in check(environment | {"HF_ENDPOINT": "http://127.0.0.1:9"}, mine)[0]
    hub.failing = "GET /api/whoami-v2"
    assert "the hub answered with status 500" in check(environment, mine)[0]
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
    (done,) = python(PUSH, environment, (TOKEN, exported))
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert (
        f"--push-to-hub ann/new: the hub answered with status 500; try again later; the export is in {exported}"
        in done.stderr
    )
    if "ann/new" in hub.repositories:
        assert list(hub.files("ann/new")) == [".gitattributes"]
    hub.failing = None
    assert python(PUSH, environment, (TOKEN, exported))[0].returncode == 0
    assert "model.safetensors" in hub.files("ann/new")
