"""Ray: what its actors take of a cluster, and a cluster on this machine whose actor is killed."""

import importlib.util
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from support import ROOT
from support.embedding_folders import rows_in

from simcse_jax.data.sentences import SentenceFile
from simcse_jax.embeddings.on_ray import Share, connected, share_of
from simcse_jax.errors import UserError


def nodes(*resources):
    return [{"Alive": True, "Resources": each} for each in resources] + [{"Alive": False, "Resources": {"GPU": 8}}]


@pytest.mark.parametrize(
    ("cluster", "hosts", "share"),
    [
        (nodes({"CPU": 8}, {"CPU": 4}), None, Share(2, "CPU", 4)),
        (nodes({"CPU": 8}, {"CPU": 4}), 3, Share(3, "CPU", 2)),
        (nodes({"CPU": 1}), None, Share(1, "CPU", 1)),
        (nodes({"CPU": 8}, {"CPU": 8, "GPU": 4}, {"CPU": 8, "GPU": 4}), None, Share(2, "GPU", 4)),
        (nodes({"CPU": 8, "TPU": 4}, {"CPU": 8, "TPU": 4}), 1, Share(1, "TPU", 4)),
    ],
)
def test_an_actor_takes_a_host(cluster, hosts, share):
    assert share_of(cluster, hosts) == share


@pytest.mark.parametrize(
    ("cluster", "hosts", "message"),
    [
        (nodes({"CPU": 2}), 3, "--hosts 3: the cluster has 1 host with 2 CPUs each"),
        (nodes({"GPU": 1}, {"GPU": 1}), 3, "--hosts 3: the cluster has 2 hosts with 1 GPU each"),
        (nodes({"memory": 8}), None, "no host of the cluster has a processor"),
    ],
)
def test_a_cluster_with_too_few_hosts_is_refused_and_not_waited_for(cluster, hosts, message):
    with pytest.raises(UserError, match=message):
        share_of(cluster, hosts)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'simcse_jax\[ray\]'"), connected(None):
        pass


@pytest.mark.slow
@pytest.mark.wiring
def test_killed_actors_and_a_killed_driver_lose_no_row_and_repeat_none(tiny_bert, sources, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'simcse_jax[ray]'")
    big = tmp_path / "big.txt"
    big.write_text(sources[0].read_text() * 200)
    command = [sys.executable, "-m", "simcse_jax.encode", "--engine", "ray", "--model", tiny_bert, "--keep-text"]
    command += ["--input", big, "--output", f"{tmp_path / 'out'}/", "--block-rows", "50", "--batch-size", "4"]

    def made():
        return len(list((tmp_path / "out").glob("embeddings-*.parquet")))

    def start(kill, until):
        job = subprocess.Popen(
            [*map(str, command)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        end = time.monotonic() + 180
        while made() < until and job.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.05)
        kill(job)
        out, err = job.communicate(timeout=300)
        return job.returncode, out, err

    def kill_actor(job):
        (actor,) = (path for path in own("ray::BlockEncoder") if path)
        os.kill(actor, signal.SIGKILL)

    code, _, err = start(lambda job: job.kill(), 3)
    assert code != 0 and made() < 80, err
    code, out, err = start(kill_actor, made() + 3)
    assert code == 0, err
    assert "4,000 embeddings of 32 elements, float32, in 80 files" in out
    rows, texts = rows_in(tmp_path / "out"), list(SentenceFile(big))
    assert [row["row"] for row in rows] == list(range(4000)) and [row["sentence"] for row in rows] == texts
    by_text = {row["sentence"]: np.array(row["embedding"]) for row in rows[:20]}
    for row in rows:
        np.testing.assert_allclose(row["embedding"], by_text[row["sentence"]], rtol=1e-5, atol=1e-6)


def own(name):
    """The processes with this title."""
    found = []
    for path in os.listdir("/proc"):
        try:
            title = open(f"/proc/{path}/cmdline").read() if path.isdecimal() else ""
        except OSError:
            continue
        if title.startswith(name):
            found.append(int(path))
    return found
