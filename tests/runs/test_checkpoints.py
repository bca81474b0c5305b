import contextlib
import resource
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        for step, score in ((1, 1.0), (3, 9.0), (6, 5.0), (8, None)):
            checkpoints.save(state(step), score)
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")


def steps(folder):
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())


def resume(folder):
    with contextlib.closing(Checkpoints(folder)) as checkpoints:
        return checkpoints.resume(state(0)), checkpoints


def same(found, expected):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True))


def test_the_two_latest_and_the_best_are_kept_and_read_back_and_a_kill_leaves_no_others(saved, tmp_path, monkeypatch):
    assert steps(saved / "checkpoints") == [3, 6, 8]
    found, checkpoints = resume(saved)
    assert same(found, state(8)) and checkpoints.latest == 8 and checkpoints.best == 3
    assert resume(tmp_path)[0] is None  # nothing is saved
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


def largest(item):
    return max(item.glob("ocdbt*/d/*"), key=lambda file: file.stat().st_size)


def empty(folder, step):
    (folder / "checkpoints" / str(step) / "params" / "manifest.ocdbt").write_bytes(b"")


def truncate(content):
    return content[: len(content) // 2]


def flip(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :]


@pytest.mark.parametrize(
    ("item", "damage"),
    [
        ("params", truncate), ("params", flip), ("optimizer", flip), ("optimizer", lambda content: None),
        ("checksum/metadata", lambda content: b""),
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_taken(copy, item, damage, capsys):
    path = copy / "checkpoints" / "8" / item
    path = largest(path) if path.is_dir() else path
    content = damage(path.read_bytes())
    path.unlink() if content is None else path.write_bytes(content)
    found, checkpoints = resume(copy)
    assert same(found, state(6)) and checkpoints.latest == 6
    said = capsys.readouterr().out
    assert "step 8 cannot be read" in said and "going on with step 6" in said and f"{DAMAGED}/8" in said
    assert steps(copy / "checkpoints") == [3, 6] and steps(copy / DAMAGED) == [8]


def test_the_step_of_a_damaged_checkpoint_can_be_saved_again(copy):
    for _ in range(2):  # the second time its place among the damaged is taken
        empty(copy, 8)
        with contextlib.closing(Checkpoints(copy)) as checkpoints:
            checkpoints.resume(state(0))
            checkpoints.save(state(8), None)
        assert same(resume(copy)[0], state(8))


def test_a_damaged_score_sets_its_checkpoint_aside_too(copy):
    path = copy / "checkpoints" / "6" / "metrics" / "metrics"
    for score in ("[" * 10**5, '{"sc'):
        path.write_text(score)
        with pytest.raises(UserError, match="checkpoints: cannot be read"):
            Checkpoints(copy, read_only=True)
    unfinished = copy / "checkpoints" / "9.orbax-checkpoint-tmp" / "metrics"
    unfinished.mkdir(parents=True)  # of a save that was killed
    (unfinished / "metrics").write_text("")
    found, checkpoints = resume(copy)
    assert same(found, state(8)) and checkpoints.best == 3 and not unfinished.exists()
    assert steps(copy / "checkpoints") == [3, 8] and steps(copy / DAMAGED) == [6]


def test_a_best_checkpoint_that_is_damaged_gives_way_to_the_next(copy, capsys):
    empty(copy, 3)
    with contextlib.closing(Checkpoints(copy)) as checkpoints:
        step, params = checkpoints.restore_best(state(0).params)
    assert step == 6 and same(params, state(6).params)
    assert "step 3 cannot be read" in (said := capsys.readouterr().out) and "going on with step 6" in said
    assert steps(copy / DAMAGED) == [3]


def test_nothing_is_moved_when_none_can_be_read(copy):
    for step in (3, 6, 8):
        empty(copy, step)
    for read in (lambda each: each.resume(state(0)), lambda each: each.restore(8, state(0))):
        with contextlib.closing(Checkpoints(copy)) as each, pytest.raises(UserError, match="step 8 cannot be read"):
            read(each)
    assert steps(copy / "checkpoints") == [3, 6, 8]


@pytest.mark.parametrize(("dtype", "bits"), [("float32", np.uint32), ("bfloat16", np.uint16)])
def test_the_checksum_sees_every_bit_and_every_place(dtype, bits):
    tree = {"a": jnp.arange(12, dtype=dtype).reshape(4, 3), "b": jnp.ones(3, jnp.int32)}
    known = int(checksum(tree))
    assert int(checksum(jax.tree.map(jnp.array, tree))) == known
    whole = np.asarray(tree["a"])
    for place in ((0, 0), (1, 2), (3, 2)):
        for bit in (0, 7, 8 * whole.itemsize - 1):
            flipped = whole.view(bits).copy()
            flipped[place] ^= bits(1 << bit)
            assert int(checksum(tree | {"a": jnp.asarray(flipped.view(whole.dtype))})) != known
    assert int(checksum(tree | {"a": tree["a"][::-1]})) != known
    assert int(checksum({"a": tree["a"].at[0, 0].set(1), "b": tree["b"]})) != known


def narrow(step):
    wide = state(step)
    moment, rest = wide.optimizer
    moment |= {"mu": jax.tree.map(lambda x: x.astype(jnp.bfloat16), moment["mu"])}
    return wide._replace(optimizer=(moment, rest))


def test_moments_in_bfloat16_are_kept_bit_by_bit(tmp_path):
    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        for step in (1, 2):
            checkpoints.save(narrow(step), None)
        checkpoints.wait()
        found = checkpoints.resume(narrow(0))
        assert same(found, narrow(2)) and found.optimizer[0]["mu"]["a.kernel"].dtype == jnp.bfloat16
    path = largest(tmp_path / "checkpoints" / "2" / "optimizer")
    path.write_bytes(flip(path.read_bytes()))
    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        assert same(checkpoints.resume(narrow(0)), narrow(1))


def test_waiting_reports_a_save_that_failed_in_the_background(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state(1), None)
    checkpoints.wait()
    assert steps(tmp_path / "checkpoints") == [1]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # writing more fails as it does on a full disk
    try:
        with pytest.raises(UserError, match=r"cannot be saved: .*; make room"):
            checkpoints.save(state(2), None)
            checkpoints.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with contextlib.suppress(UserError):
            checkpoints.close()
