import contextlib
import resource
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import run, start_command, train_args

from simcse_jax.errors import UserError
from simcse_jax.runs.checkpoints import DAMAGED, Checkpoints, checksum
from simcse_jax.runs.state import TrainState


def state(step):
    generator = np.random.default_rng(step)
    params = {name: jnp.asarray(generator.normal(size=(30, 40)), jnp.float32) for name in ("a.kernel", "b.kernel")}
    return TrainState(jnp.int32(step), params, ({"mu": params, "count": jnp.int32(step)}, ()), {})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Checkpoints of the steps 3 (the best), 6 and 8."""
    folder = tmp_path_factory.mktemp("saved")
    checkpoints = Checkpoints(folder)
    for step, score in ((1, 1.0), (3, 9.0), (6, 5.0), (8, None)):
        checkpoints.save(state(step), score)
    checkpoints.close()
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")


def steps(folder):
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def resume(folder):
    checkpoints = Checkpoints(folder)
    try:
        return checkpoints.resume(state(0)), checkpoints
    finally:
        checkpoints.close()


def same(found, expected):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True))


def test_the_two_latest_and_the_best_are_kept_and_read_back(saved):
    assert steps(saved / "checkpoints") == [3, 6, 8]
    found, checkpoints = resume(saved)
    assert same(found, state(8)) and checkpoints.latest == 8 and checkpoints.best == 3


def test_a_kill_leaves_no_half_of_a_checkpoint_that_was_to_be_removed(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "_remove_deleted", lambda self: None)  # it is killed before
        with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
            for step in range(1, 4):
                checkpoints.save(state(step), None)
    folder = tmp_path / "checkpoints"
    assert steps(folder) == [2, 3] and steps(folder / "deleted") == [1]
    with contextlib.closing(Checkpoints(tmp_path, read_only=True)):
        assert (folder / "deleted").exists()  # it may be another job's
    found, _ = resume(tmp_path)
    assert same(found, state(3)) and not (folder / "deleted").exists()


def test_nothing_saved_is_nothing_to_resume(tmp_path):
    assert resume(tmp_path)[0] is None


def truncate(content):
    return content[: len(content) // 2]


def flip(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [truncate, flip, lambda content: b"", lambda content: None])
@pytest.mark.parametrize("item", ["params", "optimizer", "checksum/metadata"])
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_taken(copy, damage, item, capsys):
    path = copy / "checkpoints" / "8" / item
    if path.is_dir():  # the file that holds the arrays
        path = max((file for file in path.glob("ocdbt*/d/*")), key=lambda file: file.stat().st_size)
    content = damage(path.read_bytes())
    path.unlink() if content is None else path.write_bytes(content)
    found, checkpoints = resume(copy)
    assert same(found, state(6))
    said = capsys.readouterr().out
    assert "step 8 cannot be read" in said and "going back to step 6" in said and f"{DAMAGED}/8" in said
    assert steps(copy / "checkpoints") == [3, 6] and steps(copy / DAMAGED) == [8]
    assert checkpoints.latest == 6


def test_the_step_of_a_damaged_checkpoint_can_be_saved_again(copy):
    for _ in range(2):  # the second time its place among the damaged is taken
        (copy / "checkpoints" / "8" / "params" / "manifest.ocdbt").write_bytes(b"")
        checkpoints = Checkpoints(copy)
        checkpoints.resume(state(0))
        checkpoints.save(state(8), None)
        checkpoints.close()
        assert same(resume(copy)[0], state(8))


@pytest.mark.parametrize("score", ['{"sc', "3", "[1]", "{}", '{"score": "x"}', '{"score": null}', "[" * 10**5])
def test_a_damaged_score_sets_its_checkpoint_aside_too(copy, score):
    path = copy / "checkpoints" / "6" / "metrics" / "metrics"
    path.write_text(score)
    with pytest.raises(UserError, match="6/metrics/metrics: damaged"):
        Checkpoints(copy, read_only=True)
    found, checkpoints = resume(copy)
    assert same(found, state(8)) and checkpoints.best == 3
    assert steps(copy / "checkpoints") == [3, 8] and steps(copy / DAMAGED) == [6]


def test_a_save_that_was_killed_while_its_score_was_written_is_forgotten(copy):
    unfinished = copy / "checkpoints" / "9.orbax-checkpoint-tmp" / "metrics"
    unfinished.mkdir(parents=True)
    (unfinished / "metrics").write_text("")
    assert Checkpoints(copy, read_only=True).latest == 8
    found, _ = resume(copy)
    assert same(found, state(8)) and not unfinished.exists()


def test_a_best_checkpoint_that_is_damaged_gives_way_to_the_next(copy, capsys):
    (copy / "checkpoints" / "3" / "params" / "manifest.ocdbt").write_bytes(b"")
    checkpoints = Checkpoints(copy)
    step, params = checkpoints.restore_best(state(0).params)
    checkpoints.close()
    assert step == 6 and same(params, state(6).params)
    assert "step 3 cannot be read" in (said := capsys.readouterr().out) and "taking the next best" in said
    assert steps(copy / DAMAGED) == [3]


def test_a_file_that_fails_once_is_read_again_and_nothing_is_moved(copy, monkeypatch):
    checkpoints, failures = Checkpoints(copy), [UserError("the network")]
    restore = checkpoints.restore

    def failing_once(*args):
        if failures:
            raise failures.pop()
        return restore(*args)

    monkeypatch.setattr(checkpoints, "restore", failing_once)
    assert same(checkpoints.resume(state(0)), state(8)) and not failures
    checkpoints.close()
    assert steps(copy / "checkpoints") == [3, 6, 8]


def test_when_none_can_be_read_nothing_is_moved(copy):
    for step in (3, 6, 8):
        (copy / "checkpoints" / str(step) / "params" / "manifest.ocdbt").write_bytes(b"")
    with pytest.raises(UserError, match="step 8 cannot be read"):
        resume(copy)
    assert steps(copy / "checkpoints") == [3, 6, 8]


def test_the_checksum_sees_every_bit_and_every_place():
    tree = {"a": jnp.arange(12, dtype=jnp.float32), "b": jnp.ones(3, jnp.int32)}
    known = int(checksum(tree))
    assert int(checksum(jax.tree.map(jnp.array, tree))) == known
    bits = np.asarray(tree["a"]).view(np.uint32)
    for place in (0, 5, 11):
        for bit in (0, 13, 31):
            flipped = bits.copy()
            flipped[place] ^= np.uint32(1 << bit)
            assert int(checksum(tree | {"a": jnp.asarray(flipped.view(np.float32))})) != known
    assert int(checksum(tree | {"a": tree["a"][::-1]})) != known
    assert int(checksum({"a": tree["a"].at[0].set(1.0), "b": tree["b"]})) != known


def test_the_checksum_sees_every_bit_of_an_array_in_bfloat16():
    array = jnp.arange(6, dtype=jnp.bfloat16).reshape(3, 2)
    known = int(checksum({"a": array}))
    bits = np.asarray(array).view(np.uint16)
    for place in np.ndindex(bits.shape):
        for bit in (0, 7, 15):
            flipped = bits.copy()
            flipped[place] ^= np.uint16(1 << bit)
            assert int(checksum({"a": jnp.asarray(flipped.view(array.dtype))})) != known


def narrow(step):
    """A state whose moment is in bfloat16."""
    wide = state(step)
    moment, rest = wide.optimizer
    moment |= {"mu": jax.tree.map(lambda x: x.astype(jnp.bfloat16), moment["mu"])}
    return wide._replace(optimizer=(moment, rest))


def test_moments_in_bfloat16_are_kept_bit_by_bit_and_a_flipped_one_is_seen(tmp_path):
    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        for step in (1, 2):
            checkpoints.save(narrow(step), None)
        checkpoints.wait()
        found = checkpoints.resume(narrow(0))
        assert same(found, narrow(2)) and found.optimizer[0]["mu"]["a.kernel"].dtype == jnp.bfloat16
    files = (tmp_path / "checkpoints" / "2" / "optimizer").glob("ocdbt*/d/*")
    path = max(files, key=lambda file: file.stat().st_size)
    path.write_bytes(flip(path.read_bytes()))
    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        assert same(checkpoints.resume(narrow(0)), narrow(1))


@pytest.mark.parametrize(("saved", "wanted"), [(narrow, state), (state, narrow)])
def test_a_moment_of_another_type_is_refused_and_nothing_is_moved(saved, wanted, tmp_path):
    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        checkpoints.save(saved(1), None)
        checkpoints.wait()
        types = {narrow: "bfloat16", state: "float32"}
        said = f"step 1 has the optimizer's mu in {types[saved]}, and this run keeps it in {types[wanted]}"
        with pytest.raises(UserError, match=said):
            checkpoints.resume(wanted(0))
    assert steps(tmp_path / "checkpoints") == [1] and not (tmp_path / DAMAGED).exists()


def test_waiting_reports_a_save_that_failed_in_the_background(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state(1), None)
    checkpoints.wait()
    assert steps(tmp_path / "checkpoints") == [1]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # writing more fails as it does on a full disk
    try:
        with pytest.raises(UserError, match=r"cannot be saved: .*; the last good one is that of step 1"):
            checkpoints.save(state(2), None)
            checkpoints.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with contextlib.suppress(UserError):
            checkpoints.close()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process's files")
def test_a_full_disk_ends_the_run_in_one_line_with_the_checkpoint_before_intact(trained, tiny_bert, corpus, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "run")
    for step in steps(workdir / "checkpoints"):
        if step > 6:
            shutil.rmtree(workdir / "checkpoints" / str(step))
    args = train_args(tiny_bert, corpus["csv"], corpus["dev"], workdir, "--config.model.mlp=always")
    with start_command("train", *args, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        # No file may become larger than that: writing fails as it does on a full disk.
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (25 * 1024, 25 * 1024))
        errors = process.communicate()[1].decode()
    assert process.returncode == 2, errors
    reported = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert len(reported) == 1 and "Traceback" not in errors, errors
    assert "cannot be saved" in reported[0] and "the last good one is that of step 6" in reported[0]
    done = run("train", *args)
    assert done.returncode == 0 and "resuming at step 6 of 8" in done.stdout, done.stderr
