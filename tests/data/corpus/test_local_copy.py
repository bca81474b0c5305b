import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.corpus import local_copy as module
from simcse_jax.data.corpus.local_copy import local_copy
from simcse_jax.data.corpus.manifest import NAME, read_manifest
from simcse_jax.errors import UserError
from simcse_jax.host.storage import as_path

pytestmark = NEEDS_GCSFS
SHARD = "corpus/shard-00000-00001"


@pytest.fixture
def stored(store, triplets):
    """`triplets` in a bucket."""
    store.objects.clear()
    for path in triplets.iterdir():
        store.put(f"corpus/{path.name}", path.read_bytes())
    store.requests.clear()
    return as_path("gs://bucket/corpus")


def test_a_copy_has_the_tokens_and_the_manifest_and_is_made_once(stored, store, triplets, tmp_path):
    copy = local_copy(stored, str(tmp_path), shown=False)
    names = {NAME, *(f"shard-00000-0000{block}" for block in range(3))}
    assert {path.name for path in copy.iterdir()} == names
    assert all((copy / name).read_bytes() == (triplets / name).read_bytes() for name in names)
    store.requests.clear()
    assert local_copy(stored, str(tmp_path), shown=False) == copy
    assert not [request for request in store.requests if "shard" in request]


def test_a_copy_that_was_stopped_goes_on(stored, store, tmp_path):
    copy = local_copy(stored, str(tmp_path), shown=False)
    whole = {path.name: path.read_bytes() for path in copy.iterdir()}
    (copy / NAME).unlink()
    (copy / "shard-00000-00001").replace(copy / ".shard-00000-00001.tmp")
    store.requests.clear()
    local_copy(stored, str(tmp_path), shown=False)
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == whole
    assert any("shard-00000-00001" in request for request in store.requests)
    assert not [request for request in store.requests if "shard-00000-00000" in request]


def test_a_shard_that_a_whole_copy_lost_is_copied_again(stored, store, tmp_path):
    copy = local_copy(stored, str(tmp_path), shown=False)
    whole = {path.name: path.read_bytes() for path in copy.iterdir()}
    (copy / "shard-00000-00001").unlink()
    store.requests.clear()
    local_copy(stored, str(tmp_path), shown=False)
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == whole
    assert not [request for request in store.requests if "shard-00000-00000" in request]


def test_texts_are_copied_where_they_are_wanted(stored, store, triplets, tmp_path):
    copy = local_copy(stored, str(tmp_path), shown=False)
    store.requests.clear()
    assert local_copy(stored, str(tmp_path), shown=False, texts=True) == copy
    assert not [request for request in store.requests if "shard" in request and ".text" not in request]
    assert {path.name for path in copy.iterdir()} == {NAME, *ALL, *(f"{name}.text" for name in ALL)}
    assert all((copy / f"{name}.text").read_bytes() == (triplets / f"{name}.text").read_bytes() for name in ALL)


ALL = tuple(f"shard-00000-0000{block}" for block in range(3))


@pytest.mark.parametrize("there", [(), ALL])
def test_processes_of_a_host_share_the_work(there, triplets, tmp_path, monkeypatch):
    """Threads here: the system's locks do not know the difference."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    for turn in range(5):
        ready = threading.Barrier(4)

        def copied(_, ready=ready, cache=tmp_path / str(turn)):
            ready.wait()
            return local_copy(triplets, str(cache), shown=False)

        target = tmp_path / str(turn) / f"{triplets.name}-{read_manifest(triplets).fingerprint[:16]}"
        target.mkdir(parents=True)
        for name in there:
            shutil.copy(triplets / name, target / name)
        with ThreadPoolExecutor(4) as processes:
            (copy,) = set(processes.map(copied, range(4)))
        assert {path.name: path.read_bytes() for path in copy.iterdir()} == {
            name: (triplets / name).read_bytes() for name in (NAME, *ALL)
        }


def test_a_copy_that_is_interrupted_ends_at_once(triplets, tmp_path):
    stop = threading.Event()
    stop.set()
    for shard in read_manifest(triplets).shards:
        assert not module._copy(triplets, tmp_path, shard.files[0], stop)
    assert not list(tmp_path.iterdir())


def test_a_cache_in_a_bucket_is_refused(triplets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"config.data.local_cache=gs://bucket/x: must be a folder on this host's disk"):
        local_copy(triplets, "gs://bucket/x", shown=False)
    assert not list(tmp_path.iterdir())


def test_a_shard_that_is_missing_or_changed_in_the_bucket_is_named(stored, store, tmp_path):
    data = store.objects[SHARD].data
    store.put(SHARD, bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(UserError, match=r"gs://bucket/corpus/shard-00000-00001: was changed"):
        local_copy(stored, str(tmp_path), shown=False)
    store.delete(SHARD)
    with pytest.raises(UserError, match=r"shard-00000-00001: missing"):
        local_copy(stored, str(tmp_path), shown=False)
    assert not [path for path in tmp_path.rglob("*") if path.name == NAME or path.name.endswith((".tmp", ".lock"))]


def test_too_little_room_is_found_before_anything_is_copied(stored, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=module.LEFT)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UserError, match=r"data.local_cache=.*: 0.2 GiB are free, but gs://bucket/corpus needs 0.3 GiB"):
        local_copy(stored, str(tmp_path), shown=False)
    assert not list(tmp_path.rglob("shard*"))
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"data.local_cache=.*: cannot be written"):
        local_copy(stored, str(tmp_path / "file"), shown=False)


def test_what_a_killed_copy_left_takes_no_room_from_the_next(stored, tmp_path, monkeypatch):
    copy = local_copy(stored, str(tmp_path), shown=False)
    (copy / NAME).unlink()
    for shard in list(copy.glob("shard-*")):
        shard.rename(copy / f".{shard.name}.0123.tmp")
    usage = shutil.disk_usage(tmp_path)._replace(free=module.LEFT)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    there, real = [], module.shared_folder.hash_file

    def counted(path):
        there.append(len(list(copy.glob(f"{path.name.removesuffix('.tmp').rpartition('.')[0]}.*tmp"))))
        return real(path)

    monkeypatch.setattr(module.shared_folder, "hash_file", counted)
    local_copy(stored, str(tmp_path), shown=False)
    assert there == [1, 1, 1]  # itself
