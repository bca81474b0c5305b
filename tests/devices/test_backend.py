import multiprocessing
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from support import finish, start_command, start_processes, train_args

from simcse_jax import SimCSE
from simcse_jax.devices import backend, processes
from simcse_jax.devices.backend import keep_compilations
from simcse_jax.errors import UserError
from simcse_jax.runs.loading import load_model
from simcse_jax.training.inputs import choose_devices


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_process_forked_after_jax_started_is_refused_and_one_forked_before_computes(monkeypatch):
    def check(connection):
        try:
            backend.check_fork()
        except UserError as error:
            connection.send(str(error))

    jax.local_devices()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=check, args=(theirs,))
    child.start()
    assert ours.poll(60)
    assert f"forked from process {os.getpid()} " in ours.recv()
    child.join(60)
    assert child.exitcode == 0
    backend.check_fork()  # this process is as it was
    monkeypatch.setattr(backend.xla_bridge, "backends_are_initialized", lambda: False)
    backend._note_fork()
    backend.start()


LOADS_AND_FORKS = """
import os, sys
from simcse_jax import SimCSE
model = SimCSE(sys.argv[1])
child = os.fork()
print(model.encode("the cat").shape, flush=True)
if child:
    sys.exit(os.waitpid(child, 0)[1])
os._exit(0)
"""


@pytest.mark.slow
def test_a_process_that_has_only_loaded_a_model_may_be_forked(tiny_bert):
    command = [sys.executable, "-c", LOADS_AND_FORKS, str(tiny_bert)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and done.stdout.split() == ["(32,)"] * 2, done.stderr


def test_all_that_computes_is_refused_in_a_fork(tiny_bert, monkeypatch):
    model = SimCSE(str(tiny_bert))
    model.build_index(["the cat", "a dog"])
    query = model.encode("the cat")
    monkeypatch.setattr(backend, "_forked_from", [7])
    for call in (
        lambda: model.encode(["a"]),
        lambda: model.encode_tokens("a"),
        lambda: model.search(query),
        lambda: model.batch_encoder(),
        lambda: processes.initialize(1),
        lambda: choose_devices(0, 0, 0),
    ):
        with pytest.raises(UserError, match="this process was forked from process 7"):
            call()


@pytest.fixture
def of_jax():
    """Sets a setting of JAX for the test."""
    before = {}

    def update(name, value):
        before.setdefault(name, getattr(jax.config, name))
        jax.config.update(name, value)

    yield update
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.mark.parametrize("error", [AssertionError(), RuntimeError("why")])
def test_a_platform_that_is_not_there_is_named(monkeypatch, of_jax, error):
    def local_devices():
        raise error

    monkeypatch.setattr(jax, "local_devices", local_devices)
    of_jax("jax_platforms", "cuda")
    with pytest.raises(UserError, match=f"^JAX_PLATFORMS=cuda: JAX cannot start it .*{error}.*; install JAX for it"):
        backend.start()


PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
OF_THE_TESTS = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")  # set for the other tests


@pytest.fixture
def settings(of_jax, monkeypatch):
    """No settings of the tests' own in the test."""
    for name in OF_THE_TESTS:
        monkeypatch.delenv(name, raising=False)
    of_jax("jax_persistent_cache_min_compile_time_secs", 1.0)
    of_jax("jax_compilation_cache_dir", None)
    of_jax("jax_enable_compilation_cache", True)


def test_compilations_are_kept_small_ones_too_in_a_user_s_own_cache_if_there_is_one(settings, monkeypatch, tmp_path):
    def chosen(home, folder=None, **variables):
        for name, value in {"XDG_CACHE_HOME": str(home), **variables}.items():
            monkeypatch.setenv(name, value)
        jax.config.update("jax_compilation_cache_dir", folder)
        keep_compilations()
        return jax.config.jax_compilation_cache_dir

    folder = tmp_path / "simcse_jax" / "xla"
    assert chosen(tmp_path) == str(folder)
    jax.block_until_ready(jax.jit(lambda x: x * 3 + 17)(np.ones(5, np.float32)))
    assert list(folder.glob("*-cache"))
    (tmp_path / "file").write_text("")
    assert chosen(tmp_path / "file") is None  # a home that cannot be written
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 1.0)
    # JAX itself has read the variable, when it was imported.
    assert chosen(tmp_path / "ours", JAX_COMPILATION_CACHE_DIR=str(tmp_path / "theirs")) is None
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 0
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 2.0)
    assert chosen(tmp_path / "ours", JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="2") is None
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 2
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    assert chosen(tmp_path / "ours", str(tmp_path / "set")) == str(tmp_path / "set")
    assert not (tmp_path / "ours").exists()


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_runs_with_a_warm_cache_compile_nothing_and_end_with_the_same_bits(
    count, tiny_bert, corpus, tmp_path, monkeypatch
):
    """Several processes read the cache that is named: the first one's."""
    cache = tmp_path / ("simcse_jax/xla" if count == 1 else "named")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "true")
    for name in OF_THE_TESTS:
        monkeypatch.delenv(name)
    if count == 2:
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(cache))
    kept, params = [], []
    for name in ("cold", "warm"):
        args = train_args(tiny_bert, corpus["txt"], "", tmp_path / name, "--config.train.max_steps=1")
        started = start_processes(args, count) if count == 2 else [start_command("train", *args, **PIPES)]
        ended = finish(started)
        assert {code for code, _, _ in ended} == {0}, ended
        said = [
            line
            for _, _, errors in ended
            for line in errors.splitlines()
            if not line.startswith(("next: ", "report: "))
        ]
        assert not any("cache" in line for line in said), ended
        kept.append({path.name: path.stat().st_mtime_ns for path in cache.glob("*-cache")})
        params.append(load_model(str(tmp_path / name)).params)
    assert (kept[0] == kept[1] or count == 2) and any(name.startswith("jit_update-") for name in kept[0])
    assert all(np.array_equal(value, params[1][name]) for name, value in params[0].items())
