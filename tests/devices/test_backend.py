import multiprocessing
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from ml_collections import config_dict
from support import finish, run, start_processes, train_args

from simcse_jax import SimCSE
from simcse_jax.devices import backend, processes
from simcse_jax.devices.backend import keep_compilations, slow_bfloat16
from simcse_jax.errors import UserError
from simcse_jax.runs.loading import load_model
from simcse_jax.training.inputs import choose_devices

FORKED = rf"forked from process {os.getpid()} after JAX had started there.*get_context\(\"spawn\"\)"


def check_in_child(connection):
    try:
        backend.check_fork()
    except UserError as error:
        connection.send(str(error))
    else:
        connection.send("")


@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_process_forked_after_jax_started_is_refused(monkeypatch):
    jax.local_devices()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=check_in_child, args=(theirs,))
    child.start()
    assert ours.poll(60)
    message = ours.recv()
    child.join(60)
    assert child.exitcode == 0
    with pytest.raises(UserError, match=FORKED):
        raise UserError(message)
    backend.check_fork()  # this process is as it was


def test_a_process_forked_before_jax_started_computes(monkeypatch):
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
        lambda: processes.initialize(config_dict.ConfigDict({"processes": 1})),
        lambda: choose_devices(config_dict.ConfigDict()),
    ):
        with pytest.raises(UserError, match="this process was forked from process 7"):
            call()


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        (
            "cuda",
            AssertionError(),
            r'=cuda: JAX is installed without it; run: pip install "jax\[cuda13\]"',
        ),
        ("gpu", RuntimeError("rocm"), r'run: pip install "jax\[cuda13\]"'),
        ("tpu", RuntimeError("libtpu.so"), r'run: pip install "jax\[tpu\]"'),
        ("rocm", RuntimeError("rocm"), r'run: pip install "jax\[rocm7-local\]"'),
        ("abacus", RuntimeError("not in the list"), r"JAX_PLATFORMS=abacus: JAX cannot start it \(not in the list\)"),
    ],
)
def test_a_platform_that_is_not_there_is_named_with_what_installs_it(monkeypatch, asked, error, message):
    def local_devices():
        raise error

    monkeypatch.setattr(jax, "local_devices", local_devices)
    monkeypatch.setattr(backend, "installed", lambda module: False)
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", asked)
    try:
        with pytest.raises(UserError, match=message):
            backend.start()
        monkeypatch.setattr(backend, "installed", lambda module: True)  # and no device
        with pytest.raises(UserError, match=f"JAX_PLATFORMS={asked}: JAX cannot start it"):
            backend.start()
    finally:
        jax.config.update("jax_platforms", before)


@pytest.mark.parametrize(
    ("name", "value", "training_alone"),
    [
        ("jax_numpy_rank_promotion", "raise", False),
        ("jax_transfer_guard", "disallow", False),
        ("jax_transfer_guard", "disallow_explicit", False),
        ("jax_disable_jit", True, True),
        ("jax_numpy_dtype_promotion", "strict", True),
    ],
)
def test_settings_of_jax_that_our_programs_cannot_have(name, value, training_alone):
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        with pytest.raises(UserError, match=f"{name.upper()}={str(value).lower()}: .*; leave it out"):
            backend.start(training=True)
        if training_alone:
            backend.start()
        else:
            with pytest.raises(UserError, match=f"{name.upper()}={value}: simcse_jax does not run"):
                backend.start()
    finally:
        jax.config.update(name, before)


def test_a_user_s_environment_is_refused_in_a_line(tiny_bert, tmp_path):
    (tmp_path / "a.txt").write_text("the cat\n")
    command = [sys.executable, "-m", "simcse_jax", "encode", "--model", tiny_bert, "--data", tmp_path / "a.txt"]
    command += ["--output", tmp_path / "a.npy"]
    environment = os.environ | {"JAX_PLATFORMS": "rocm"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and done.stderr.startswith("error: JAX_PLATFORMS=rocm: "), done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "a.npy").exists()


INTEL = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx512f {}\nbugs\t\t: some\n"
ARM = "processor\t: 0\nFeatures\t: fp asimd {}\n"


@pytest.mark.parametrize(
    ("text", "slow"),
    [
        (INTEL.format("avx2"), True),
        (INTEL.format("avx512_bf16"), False),
        (INTEL.format("amx_bf16"), False),
        (ARM.format("bf16"), False),
        (ARM.format("i8mm"), True),
        ("processor: 0\n", False),  # it does not say
        (None, False),
    ],
)
def test_a_cpu_without_instructions_for_bfloat16_is_told(tmp_path, monkeypatch, text, slow):
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(backend, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    found = slow_bfloat16.__wrapped__()
    assert ("float32 is faster here" in found) is slow
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert slow_bfloat16.__wrapped__() == ""


def test_a_model_warns_of_it(tiny_bert, monkeypatch):
    from simcse_jax import SimCSE

    monkeypatch.setattr("simcse_jax.simcse.slow_bfloat16", lambda: "bfloat16: slow here")
    with pytest.warns(UserWarning, match="bfloat16: slow here") as told:
        SimCSE(str(tiny_bert), dtype="bfloat16")
    assert told[0].filename == __file__


OF_THE_TESTS = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")  # set for the other tests


@pytest.fixture
def settings(monkeypatch):
    """No settings of the tests' own in the test; JAX's as they were after it."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_enable_compilation_cache")
    before = {name: getattr(jax.config, name) for name in names}
    for name in OF_THE_TESTS:
        monkeypatch.delenv(name, raising=False)
    jax.config.update("jax_compilation_cache_dir", None)
    jax.config.update("jax_enable_compilation_cache", True)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_compilations_are_kept_small_ones_too(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_compilations()
    folder = tmp_path / "simcse_jax" / "xla"
    assert jax.config.jax_compilation_cache_dir == str(folder)
    jax.block_until_ready(jax.jit(lambda x: x * 3 + 17)(np.ones(5, np.float32)))
    assert list(folder.glob("*-cache"))


def test_a_user_s_own_cache_is_used(settings, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "ours"))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "theirs"))
    keep_compilations()
    assert jax.config.jax_compilation_cache_dir is None  # JAX itself has read the variable, when it was imported
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 0
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "2")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 2.0)
    keep_compilations()
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 2
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "set"))
    keep_compilations()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "set")
    assert not (tmp_path / "ours").exists()


def test_a_home_that_cannot_be_written_does_not_matter(settings, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep_compilations()
    assert jax.config.jax_compilation_cache_dir is None


def same(first, second):
    """Whether two runs have ended with the same parameters, bit for bit."""
    first, second = load_model(str(first)).params, load_model(str(second)).params
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_a_run_with_a_warm_cache_compiles_nothing_and_ends_with_the_same_bits(tiny_bert, corpus, tmp_path, monkeypatch):
    for name in OF_THE_TESTS:
        monkeypatch.delenv(name)
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "JAX_ENABLE_COMPILATION_CACHE": "true"}
    kept = []
    for name in ("cold", "warm"):
        args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / name, "--config.train.max_steps=2")
        done = run("train", *args, env=environment)
        assert done.returncode == 0, done.stderr
        files = (tmp_path / "cache" / "simcse_jax" / "xla").glob("*-cache")
        kept.append({path.name: path.stat().st_mtime_ns for path in files})
    assert kept[0] == kept[1] and any(name.startswith("jit_update-") for name in kept[0])
    assert same(tmp_path / "cold", tmp_path / "warm")


@pytest.mark.slow
def test_processes_read_the_cache_of_the_first_one(monkeypatch, tiny_bert, corpus, tmp_path):
    monkeypatch.delenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "true")
    for name in ("cold", "warm"):
        args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path / name, "--config.train.max_steps=4")
        ended = finish(start_processes(args))
        assert [code for code, _, _ in ended] == [0, 0], ended
        said = [line for _, _, errors in ended for line in errors.splitlines() if not line.startswith("next: ")]
        assert not any("cache" in line for line in said), ended
    assert any((tmp_path / "cache").glob("jit_update-*"))
    assert same(tmp_path / "cold", tmp_path / "warm")
