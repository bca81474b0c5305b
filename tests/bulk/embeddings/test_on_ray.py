"""Ray: what its actors take of a cluster, and a cluster on this machine whose actor is killed."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from support import ROOT
from support.data import raises
from support.embedding_folders import rows_in

from simcse_jax.bulk.embeddings import on_ray
from simcse_jax.bulk.embeddings.embeddings_folder import blocks_of
from simcse_jax.bulk.embeddings.encoder import EncodingOptions
from simcse_jax.bulk.embeddings.on_ray import Answer, BlockEncoder, Job, Share, connected, share_of
from simcse_jax.data.sentences import SentenceFile

RAY = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")


def nodes(*resources):
    return [{"Alive": True, "Resources": each} for each in resources] + [{"Alive": False, "Resources": {"GPU": 8}}]


def test_an_actor_takes_a_host_and_too_few_hosts_are_refused():
    for cluster, hosts, share in (
        (nodes({"CPU": 8}, {"CPU": 4}), None, Share(2, "CPU", 4)),
        (nodes({"CPU": 8}, {"CPU": 4}), 3, Share(3, "CPU", 2)),
        (nodes({"CPU": 1}), None, Share(1, "CPU", 1)),
        (nodes({"CPU": 8}, {"CPU": 8, "GPU": 4}, {"CPU": 8, "GPU": 4}), None, Share(2, "GPU", 4)),
        (nodes({"CPU": 8, "TPU": 4}, {"CPU": 8, "TPU": 4}), 1, Share(1, "TPU", 4)),
    ):
        assert share_of(cluster, hosts) == share
    raises("--hosts 3: the cluster has 1 host with 2 CPUs each", share_of, nodes({"CPU": 2}), 3)
    raises("--hosts 3: the cluster has 2 hosts with 1 GPU each", share_of, nodes({"GPU": 1}, {"GPU": 1}), 3)
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
    assert on_ray._count(job, 0) == on_ray._count(job, 1) == Answer(True)
    block = blocks_of(tmp_path / "out", job.plan)[0]
    actor = BlockEncoder(job, Share(1, "CPU", 2))
    assert actor.load() == actor.make(block) == Answer(True)
    assert (tmp_path / "out" / block.file).exists() and os.environ["NPROC"] == "2"
    host = os.uname().nodename
    elsewhere = f"is a different folder here; name one that all hosts see (on {host})"
    for other in (job._replace(folder="new"), job._replace(plan=job.plan._replace(stamps={}))):
        assert on_ray._count(other, 0) == Answer(False, f"--output {other.folder}: {elsewhere}")
        assert BlockEncoder(other, Share(1, "CPU", 1)).load().mistake.endswith(elsewhere)
    assert not (tmp_path / "new").exists()
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    no_accelerator = 'JAX sees no TPU here; run: pip install "jax[tpu]"'
    assert no_accelerator in BlockEncoder(job, Share(1, "TPU", 3)).load().mistake
    another = job._replace(options=EncodingOptions(job.options.model, max_length=5))
    assert "--max-length" in BlockEncoder(another, Share(1, "CPU", 1)).load().mistake


class Cluster:
    """In place of Ray's. `answer` of a block, None for a model to load, gives an actor's answer, or raises an error."""

    def __init__(self, answer, monkeypatch):
        import ray

        method = SimpleNamespace(remote=lambda block=None: (object(), block))
        actor = SimpleNamespace(load=method, make=method)
        kind = SimpleNamespace(remote=lambda job, share: actor)
        monkeypatch.setattr(ray, "remote", lambda *work, **amount: lambda encoder: kind)
        monkeypatch.setattr(ray, "wait", lambda left, **options: (left[:1], left[1:]))
        monkeypatch.setattr(ray, "get", lambda result: answer(result[1]))
        monkeypatch.setattr(ray, "put", lambda job: job)
        monkeypatch.setattr(ray, "nodes", lambda: nodes({"CPU": 1}))


@RAY
def test_actors_that_are_lost_again_and_again_or_lack_the_package_end_the_job(monkeypatch):
    from ray.exceptions import ActorDiedError, RayTaskError

    lost = []

    def answer(block):
        lost.append(block)
        if len(lost) % 3 and block != "b":  # a few lost ones are no harm, but one block kills every actor
            return Answer(True)
        raise ActorDiedError

    Cluster(answer, monkeypatch)
    made = on_ray._make_blocks(None, ["a", "c", "d", "e", "b"], Share(1, "CPU", 1))
    assert [next(made) for _ in range(4)] == ["a", "c", "d", "e"]
    raises("--engine ray: 3 actors in a row were lost", next, made)

    def without_the_package(block):
        raise RayTaskError("load", "RuntimeError: failed to import\nNo module named 'simcse_jax' trace", ImportError())

    Cluster(without_the_package, monkeypatch)
    raises("on a host of the cluster: No module named", list, on_ray._make_blocks(None, ["a"], Share(1, "CPU", 1)))


@RAY
@pytest.mark.slow
def test_killed_actors_and_a_killed_driver_lose_no_row_and_repeat_none(tiny_bert, sources, tmp_path):
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

    def kill_actor(job):
        titles = ["pgrep", "-f", "^ray::BlockEncoder"]
        (actor,) = subprocess.run(titles, capture_output=True, text=True, check=True).stdout.split()
        os.kill(int(actor), signal.SIGKILL)

    code, _, err = start(lambda job: job.kill(), 3)
    assert code != 0 and made() < 80, err
    code, out, err = start(kill_actor, made() + 3)
    assert code == 0, err
    assert "4,000 embeddings of 32 elements, float32, in 80 files" in out
    rows, texts = rows_in(folder), list(SentenceFile(big))
    assert [(row["row"], row["sentence"]) for row in rows] == list(enumerate(texts))
    by_text = {row["sentence"]: np.array(row["embedding"]) for row in rows[:20]}
    for row in rows:
        np.testing.assert_allclose(row["embedding"], by_text[row["sentence"]], rtol=1e-5, atol=1e-6)
