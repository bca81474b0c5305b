import multiprocessing
import os
import subprocess
import sys

import jax
import pytest
from ml_collections import config_dict

from simcse_jax import SimCSE
from simcse_jax.devices import backend, processes
from simcse_jax.errors import UserError
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
        lambda: SimCSE(str(tiny_bert)),
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
    command = [sys.executable, "-m", "simcse_jax.commands.encode", "--model", tiny_bert, "--input", tmp_path / "a.txt"]
    command += ["--output", tmp_path / "a.npy"]
    environment = os.environ | {"JAX_PLATFORMS": "rocm"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and done.stderr.startswith("error: JAX_PLATFORMS=rocm: "), done.stderr
    assert done.stderr.count("\n") == 1 and not (tmp_path / "a.npy").exists()
