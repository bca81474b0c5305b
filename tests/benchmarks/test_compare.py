import os
import subprocess
import sys

import pytest
from support import ROOT

from simcse_jax.errors import UserError

sys.path.insert(0, str(ROOT))
from benchmarks import compare
from benchmarks.side_by_side import Child, Contender
from benchmarks.training import Setting


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """Two commits, whose contender says which one it is; the second one is twice as fast."""
    folder = tmp_path_factory.mktemp("repository")

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)

    git("init", "-q")
    (folder / "benchmarks").mkdir()
    for name in ("contender", "machine"):
        (folder / "benchmarks" / f"{name}.py").write_text((ROOT / "benchmarks" / f"{name}.py").read_text())
    for work in (10, 20):
        ours = f"def ours(**options):\n    return lambda: Done({work}, options, 2.0)"
        (folder / "benchmarks" / "training.py").write_text(f"from benchmarks.contender import Done\n{ours}\n")
        git("add", "-A")
        git("commit", "-qm", f"work {work}")
    return folder


def worktrees(repository):
    command = ["git", "worktree", "list"]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True).stdout.count("\n")


def test_commits_are_found_by_any_name_and_run_in_worktrees_that_are_removed(repository, tmp_path, monkeypatch):
    old, new = compare.commits("HEAD~1", "HEAD", repository)
    assert old.sha != new.sha and old.name == f"OLD, HEAD~1, {old.sha[:10]}"
    assert compare.commits(old.sha[:7], "HEAD", repository)[0].name == f"OLD, {old.sha[:7]}"
    for old, new, folder, message in (
        ("HEAD", "0123abc", repository, "NEW 0123abc: no such commit"),
        ("--all", "HEAD", repository, "OLD --all: no such commit"),
        ("HEAD", "HEAD", tmp_path, "is no git repository"),
    ):
        with pytest.raises(UserError, match=message):
            compare.commits(old, new, folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", os.sep)
    both, works = compare.commits("HEAD~1", "HEAD", repository), []
    for commit in both:
        with compare.worktree(commit, repository) as path:
            compare.check_has(commit, path, "train_step")
            with pytest.raises(UserError, match=r"has no benchmarks.host_work.steps; leave --benchmark host_work out"):
                compare.check_has(commit, path, "host_work")
            with Child(Contender("x", compare.FACTORIES["train_step"], {"a": 1}, folder=path)) as child:
                child.wait()
                answer = child.round()
            assert answer["notes"] == {"a": 1}
            works.append(answer["work"])
        assert not path.exists() and worktrees(repository) == 1
    assert works == [10, 20]
    with pytest.raises(UserError, match="gone: cannot be checked out"):
        compare.worktree(compare.Commit("gone", "0" * 40), repository).__enter__()
    assert worktrees(repository) == 1


@pytest.mark.parametrize("benchmark", list(compare.FACTORIES))
def test_a_benchmark_s_options_are_those_of_its_contender(benchmark, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["compare", "HEAD", "HEAD", "--data", str(corpus["txt"])])
    monkeypatch.setattr(compare, "make", lambda *_: None)
    found = compare.options_of(benchmark, compare.parse(), "a model", tmp_path)
    if benchmark == "encode":
        assert found["batch_size"] == 64 and os.path.isfile(found["sentences"])
    else:
        setting = Setting(**found)
        assert setting.batch_size == 64 and os.path.isabs(setting.data)
