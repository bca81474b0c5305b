"""Pushing to a hub and loading from it, against our own hub on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT, run
from support.hub_server import Hub

from simcse_jax.huggingface.hub import split_name

TOKEN = "hf_ours"


@pytest.fixture
def hub():
    with Hub() as server:
        server.tokens[TOKEN] = {"name": "ann", "role": "write", "orgs": ["lab"]}
        server.tokens["hf_other"] = {"name": "bob", "role": "write"}
        yield server


@pytest.fixture
def environment(hub, tmp_path):
    switches = {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_TOKEN": ""}
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "NO_PROXY": "127.0.0.1", **switches}


def publish(hub: Hub, folder: Path, name: str = "ann/tiny", private: bool = False) -> None:
    hub.create(name, private)
    hub.commit(name, "main", {path.name: path.read_bytes() for path in folder.iterdir()})


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
    found = python(CHECK, environment, *calls)
    assert all(done.returncode == (2 if done.stderr else 0) and done.stderr.count("\n") <= 1 for done in found), found
    return [done.stderr for done in found]


def test_names_of_a_hub():
    assert split_name("bert-base-uncased") == ("bert-base-uncased", None)
    assert split_name("ann/tiny@v1.0") == ("ann/tiny", "v1.0")
    assert split_name("ann/tiny@refs/pr/3") == ("ann/tiny", "refs/pr/3")
    for name in ("a/b/c", "/tmp/x", "../up", "ann/tiny@", "ann/tiny@-x", "a b", ""):
        assert split_name(name) is None


def test_a_model_goes_to_the_hub_and_comes_back(hub, environment, trained, tmp_path):
    mine = environment | {"HF_TOKEN": TOKEN}
    args = ("--workdir", trained, "--output", tmp_path / "out", "--push-to-hub")
    done = run("export", *args, "ann/new", "--private", "--revision", "v1", env=mine)
    assert done.returncode == 0, done.stderr
    assert f"pushed: {hub.url}/ann/new/commit/" in done.stdout
    assert hub.repositories["ann/new"].private
    assert list(hub.files("ann/new")) == [".gitattributes"]  # only the branch has it
    written = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert hub.files("ann/new", "v1").keys() == written | {".gitattributes"}
    assert b'SimCSE("ann/new@v1")' in hub.files("ann/new", "v1")["README.md"]
    fetched = fetch(environment, "ann/new@v1", TOKEN)
    assert fetched.returncode == 0, fetched.stderr
    weights = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert Path(fetched.stdout.strip(), "model.safetensors").read_bytes() == weights


def test_failed_downloads_are_reported_in_one_line(hub, environment, tiny_bert):
    publish(hub, tiny_bert)
    publish(hub, tiny_bert, "ann/secret", private=True)
    hub.failing = "GET /api/models/ann/broken"
    complaints = {
        "ann/tiny@v9": "Revision Not Found for url: ",
        "ann/secret": "there is no such model, or it is private: check the name, or log in with `hf auth login`",
        "ann/nothing": "there is no such model, or it is private",
        "ann/broken": "500",
    }
    calls = [*(("", name) for name in complaints), ("hf_wrong", "ann/secret"), (TOKEN, "ann/secret")]
    *found, wrong, mine = python(FETCH, environment, *calls)
    for done, complaint in zip(found, complaints.values(), strict=True):
        assert done.returncode == 2, done.stdout
        assert complaint in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert "401" in wrong.stderr or ("no such model, or it is private" in wrong.stderr and mine.returncode == 0), (
        wrong.stderr
    )


@pytest.mark.slow
def test_a_hub_out_of_reach_is_said_a_partial_file_is_not_used_and_a_command_says_which_model(
    hub, environment, tiny_bert, tmp_path
):
    publish(hub, tiny_bert)
    mine, offline = (TOKEN, "ann/tiny", False, None), {"HF_HUB_OFFLINE": "1"}
    for changed, message in (({"HF_ENDPOINT": "http://127.0.0.1:9"}, "Connect"), (offline, "HF_HUB_OFFLINE")):
        assert message in fetch(environment | changed, "ann/tiny").stderr
        assert message in check(environment | changed, mine)[0]
    hub.breaking = "GET /ann/tiny/resolve/.*/model.safetensors"
    done = fetch(environment, "ann/tiny")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert not list((tmp_path / "hf").rglob("model.safetensors"))
    assert fetch(environment | offline, "ann/tiny").returncode == 2  # the cache has a part only
    hub.breaking = None
    whole = Path(fetch(environment, "ann/tiny").stdout.strip(), "model.safetensors")
    assert whole.read_bytes() == (tiny_bert / "model.safetensors").read_bytes()
    served, hub.failing = len(hub.requests), "GET /api/whoami-v2"
    assert fetch(environment | offline, "ann/tiny").returncode == 0 and len(hub.requests) == served
    assert "500" in check(environment, mine)[0]
    done = run("evaluate", "--model", "ann/tiny@v9", "--data", ROOT / "examples/everyday/dev.tsv", env=environment)
    message = "error: ann/tiny@v9: no such folder, and the download from the hub failed: 404 Client Error"
    assert done.returncode == 2 and done.stderr.startswith(message) and done.stderr.count("\n") == 1


def test_a_push_that_cannot_succeed_is_refused_before_any_work(hub, environment):
    hub.create("ann/public")
    refusals = {
        ("", "ann/tiny", False, None): "there is no token; log in",
        ("hf_wrong", "ann/tiny", False, None): "--push-to-hub ann/tiny: ",
        (TOKEN, "bob/tiny", False, None): "the token belongs to ann, who may push to ann, lab",
        **{(TOKEN, name, False, None): "must be OWNER/NAME" for name in ("ann/tiny/x", "ann/ti ny", "tiny")},
        (TOKEN, "ann/tiny", False, "-x"): "--revision the name of a branch",
        (TOKEN, "ann/public", True, None): "exists and is public",
    }
    allowed = ((TOKEN, "lab/tiny", True, None), (TOKEN, "ann/public", False, None))
    *found, private, same = check(environment, *refusals, *allowed)
    for complaint, message in zip(found, refusals.values(), strict=True):
        assert message in complaint
    assert private == same == ""
    assert list(hub.repositories) == ["ann/public"]  # a check changes nothing


@pytest.mark.slow
def test_a_push_is_refused_before_the_export(hub, environment, trained, tmp_path):
    done = run("export", "--workdir", trained, "--output", tmp_path / "out", "--push-to-hub", "ann/x", env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --push-to-hub ann/x: there is no token")
    assert not (tmp_path / "out").exists() and not hub.repositories


@pytest.mark.slow
@pytest.mark.parametrize("request_", ["POST /api/models/ann/new/commit", "PUT /lfs", "POST /api/repos/create"])
def test_a_push_that_fails_changes_no_branch(hub, environment, tiny_bert, request_):
    hub.failing = request_
    (done,) = python(PUSH, environment, (TOKEN, tiny_bert))
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "error: --push-to-hub ann/new: " in done.stderr
    assert f"the export is in {tiny_bert}" in done.stderr
    assert "ann/new" not in hub.repositories or list(hub.files("ann/new")) == [".gitattributes"]
