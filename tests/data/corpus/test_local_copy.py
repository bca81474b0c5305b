import os
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.data import raises
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.corpus import local_copy as module
from simcse_jax.data.corpus.local_copy import local_copy
from simcse_jax.data.corpus.manifest import NAME, read_manifest
from simcse_jax.host.storage import as_path

pytestmark = NEEDS_GCSFS
FIRST, SECOND, THIRD = ALL = tuple(f"shard-00000-0000{block}" for block in range(3))
SHARD = re.compile(r"shard-\d+-\d+(\.text)?")


@pytest.fixture
def stored(store, triplets):
    store.objects.clear()
    for path in triplets.iterdir():
        store.put(f"corpus/{path.name}", path.read_bytes())
    store.requests.clear()
    return as_path("gs://bucket/corpus")


@pytest.fixture
def copied(stored, store, tmp_path):
    """Copies it, and gives the folder and the names of the shards that were asked for."""

    def copy(**options):
        store.requests.clear()
        folder = local_copy(stored, str(tmp_path), shown=False, **options)
        return folder, {name[0] for name in map(SHARD.search, store.requests) if name}

    return copy


def files(folder, names=(NAME, *ALL)):
    return {name: (folder / name).read_bytes() for name in names}


def full(monkeypatch, tmp_path):
    usage = shutil.disk_usage(tmp_path)._replace(free=module.LEFT)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)


def test_a_copy_has_the_tokens_and_the_manifest_is_made_once_and_completed(copied, triplets):
    copy, _ = copied()
    assert files(copy, os.listdir(copy)) == files(triplets)
    assert copied() == (copy, set())
    (copy / NAME).unlink()  # as if it was stopped
    (copy / SECOND).replace(copy / f".{SECOND}.tmp")
    assert copied()[1] == {SECOND} and files(copy, os.listdir(copy)) == files(triplets)
    (copy / SECOND).unlink()
    assert copied()[1] == {SECOND} and files(copy, os.listdir(copy)) == files(triplets)
    texts = [f"{name}.text" for name in ALL]
    assert copied(texts=True) == (copy, {*texts}) and files(copy, os.listdir(copy)) == files(
        triplets, [NAME, *ALL, *texts]
    )


def test_processes_of_a_host_share_the_work(triplets, tmp_path, monkeypatch):
    """Threads here: the system's locks do not know the difference."""
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.02)
    for turn, made in enumerate(((), (), ALL)):
        ready, cache = threading.Barrier(4), tmp_path / str(turn)
        target = cache / f"{triplets.name}-{read_manifest(triplets).fingerprint[:16]}"
        target.mkdir(parents=True)
        for name in made:
            shutil.copy(triplets / name, target / name)
        with ThreadPoolExecutor(4) as processes:
            work = processes.map(lambda _: (ready.wait(), local_copy(triplets, str(cache), shown=False))[1], range(4))
            (copy,) = set(work)
        assert files(copy, os.listdir(copy)) == files(triplets)


def test_caches_that_cannot_be_are_refused_before_anything_is_copied(stored, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raises("config.data.local_cache=gs://bucket/x: must be a folder", local_copy, stored, "gs://bucket/x", shown=False)
    (tmp_path / "file").touch()
    raises("file: cannot be written", local_copy, stored, str(tmp_path / "file"), shown=False)
    full(monkeypatch, tmp_path)
    message = ": 0.2 GiB are free, but gs://bucket/corpus needs 0.3 GiB"
    raises(message, local_copy, stored, str(tmp_path), shown=False)
    assert not list(tmp_path.rglob("shard*"))


def test_a_shard_that_is_missing_or_changed_in_the_bucket_is_named(stored, store, tmp_path):
    data = store.objects[f"corpus/{SECOND}"].data
    store.put(f"corpus/{SECOND}", bytes([data[0] ^ 1]) + data[1:])
    raises(f"gs://bucket/corpus/{SECOND}: was changed", local_copy, stored, str(tmp_path), shown=False)
    store.delete(f"corpus/{SECOND}")
    raises(f"gs://bucket/corpus/{SECOND}: missing", local_copy, stored, str(tmp_path), shown=False)
    assert not [path for path in tmp_path.rglob("*") if path.name == NAME or path.name.endswith((".tmp", ".lock"))]


def test_what_a_killed_copy_left_takes_no_room_from_the_next(copied, tmp_path, monkeypatch):
    copy, _ = copied()
    (copy / NAME).unlink()
    for name in ALL:
        (copy / name).rename(copy / f".{name}.0123.tmp")
    full(monkeypatch, tmp_path)
    left, real = [], module.shared_folder.hash_file

    def counted(path):
        left.append(len(list(copy.glob(f"{path.name.removesuffix('.tmp').rpartition('.')[0]}.*tmp"))))
        return real(path)

    monkeypatch.setattr(module.shared_folder, "hash_file", counted)
    copied()
    assert left == [1, 1, 1]  # itself
