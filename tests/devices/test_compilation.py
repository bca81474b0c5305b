import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from support import finish, run, start_processes, train_args

from simcse_jax.devices.compilation import keep_compilations
from simcse_jax.runs.loading import load_model

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
        assert not any("cache" in errors for _, _, errors in ended), ended
    assert any((tmp_path / "cache").glob("jit_update-*"))
    assert same(tmp_path / "cold", tmp_path / "warm")
