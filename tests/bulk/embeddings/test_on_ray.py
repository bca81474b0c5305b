"""Ray: what its workers take of a cluster, and a cluster on this machine whose worker is killed."""

import importlib.util
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from support import ROOT
from support.data import raises
from support.embedding_folders import rows_in

from simcse_jax.bulk.embeddings.encoder import EncodingOptions
from simcse_jax.bulk.embeddings.on_ray import Job, Share, connected, encode_on_host, share_of
from simcse_jax.data.sentences import SentenceFile

RAY = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")


def nodes(*resources):
    return [{"Alive": True, "Resources": each} for each in resources] + [{"Alive": False, "Resources": {"GPU": 8}}]


def test_a_worker_takes_a_host():
    for cluster, hosts, share in (
        (nodes({"CPU": 8}, {"CPU": 4}), None, Share(2, "CPU", 4)),
        (nodes({"CPU": 8}, {"CPU": 4}), 3, Share(3, "CPU", 2)),
        (nodes({"CPU": 1}), None, Share(1, "CPU", 1)),
        (nodes({"CPU": 8}, {"CPU": 8, "GPU": 4}, {"CPU": 8, "GPU": 4}), None, Share(2, "GPU", 4)),
        (nodes({"CPU": 8, "TPU": 4}, {"CPU": 8, "TPU": 4}), 1, Share(1, "TPU", 4)),
    ):
        assert share_of(cluster, hosts) == share
    raises("no host of the cluster has a processor", share_of, nodes({"memory": 8}), None)


@RAY
def test_an_address_where_nobody_listens_and_a_missing_package_are_refused_at_once(monkeypatch):
    for address in ("127.0.0.1:1", "127.0.0.1:99999", "no.such.host.invalid:6379"):
        raises(f"--address {address}: cannot be reached: ", connected(address).__enter__)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    raises("simcse_jax[ray]", connected(None).__enter__)


@pytest.fixture
def job(plan, tiny_bert, tmp_path, monkeypatch):
    """That of a folder which was begun; the cluster's processes began in another working directory."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("NPROC", "1")
    return Job(str(tmp_path), "out", plan, EncodingOptions(str(tiny_bert)))


def test_relative_names_begin_where_the_command_was_given_and_a_host_that_differs_says_so(job, tmp_path, monkeypatch):
    cpu = Share(1, "CPU", 2)
    assert encode_on_host(job, cpu) == ""
    assert (tmp_path / "out" / ".embeddings.json").exists() and os.environ["NPROC"] == "2"
    another_plan = job.plan._replace(key={**job.plan.key, "--max-length": 5})
    for other in (job._replace(folder="new"), job._replace(plan=another_plan)):
        elsewhere = f"is a different folder here; name one that all hosts see (on {os.uname().nodename})"
        assert encode_on_host(other, cpu) == f"--output {other.folder}: {elsewhere}"
    assert not (tmp_path / "new").exists()
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert "JAX sees no TPU here" in encode_on_host(job, Share(1, "TPU", 3))
    another = job._replace(options=EncodingOptions(job.options.model, max_length=5))
    assert "--max-length" in encode_on_host(another, cpu)


@RAY
@pytest.mark.slow
def test_killed_workers_and_a_killed_driver_lose_no_row_and_repeat_none(tiny_bert, sources, tmp_path):
    big, folder = tmp_path / "big.txt", tmp_path / "out"
    big.write_text(sources[0].read_text() * 200)
    command = [sys.executable, "-m", "simcse_jax", "encode", "--engine", "ray", "--model", tiny_bert, "--keep-text"]
    command += ["--data", big, "--output", f"{folder}/", "--block-rows", "50", "--batch-size", "4"]

    def made():
        return len(list(folder.glob("embeddings-*.parquet")))

    def start(kill, until):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        job = subprocess.Popen([*map(str, command)], cwd=ROOT, **pipes)
        end = time.monotonic() + 180
        while made() < until and job.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.05)
        kill(job)
        out, err = job.communicate(timeout=300)
        return job.returncode, out, err

    def kill_worker(job):
        titles = ["pgrep", "-f", "^ray::encode_on_host"]
        (worker,) = subprocess.run(titles, capture_output=True, text=True, check=True).stdout.split()
        os.kill(int(worker), signal.SIGKILL)

    code, _, err = start(lambda job: job.kill(), 3)
    assert code != 0 and made() < 80, err
    code, out, err = start(kill_worker, made() + 3)
    assert code == 0, err
    assert "4,000 embeddings of 32 elements, float32, in 80 files" in out
    rows, texts = rows_in(folder), list(SentenceFile(big))
    assert [(row["row"], row["sentence"]) for row in rows] == list(enumerate(texts))
    by_text = {row["sentence"]: np.array(row["embedding"]) for row in rows[:20]}
    for row in rows:
        np.testing.assert_allclose(row["embedding"], by_text[row["sentence"]], rtol=1e-5, atol=1e-6)


KILLER = """
import os, sys
from simcse_jax import encode
from simcse_jax.bulk.embeddings import on_ray

def die(job, share):
    os._exit(9)

on_ray.encode_on_host, on_ray.RETRIES = die, 1
model, data, output = sys.argv[1:]
try:
    encode(model, data, output, engine="ray", block_rows=5)
except on_ray.UserError as error:
    sys.exit(f"refused: {error}")
"""


@RAY
@pytest.mark.slow
def test_a_block_that_kills_every_worker_ends_the_command(tiny_bert, sources, tmp_path):
    command = [sys.executable, "-c", KILLER, tiny_bert, sources[0], f"{tmp_path}/out/"]
    ended = subprocess.run([*map(str, command)], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1 and "refused: engine ray: " in ended.stderr, ended.stderr
