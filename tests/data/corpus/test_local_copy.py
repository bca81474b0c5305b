import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.corpora import prepare
from support.data import raises
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.corpus import local_copy as module
from simcse_jax.data.corpus.local_copy import local_copy
from simcse_jax.data.corpus.manifest import NAME
from simcse_jax.host.storage import as_path

FIRST, SECOND = "data-00000.arrow", "data-00001.arrow"


@pytest.fixture
def made(tiny_bert, corpus, tmp_path):
    prepare(tmp_path / "made", tiny_bert, corpus["txt"], corpus["csv"], mixed=True, keep_text=True)
    return tmp_path / "made"


@pytest.fixture
def stored(store, made):
    store.objects.clear()
    for path in made.iterdir():
        store.put(f"corpus/{path.name}", path.read_bytes())
    return as_path("gs://bucket/corpus")


def files(folder):
    return {name: (folder / name).read_bytes() for name in (NAME, FIRST, SECOND)}


@NEEDS_GCSFS
def test_a_copy_is_made_once_and_completed(stored, store, made, tmp_path):
    def copied():
        store.requests.clear()
        copy = local_copy(stored, str(tmp_path / "ssd"), shown=False)
        return copy, {name for name in (FIRST, SECOND) if any(name in str(request) for request in store.requests)}

    copy, asked = copied()
    assert files(copy) == files(made) and asked == {FIRST, SECOND}
    assert copied() == (copy, set())
    (copy / NAME).unlink()  # as if it was stopped
    (copy / SECOND).replace(copy / f".{SECOND}.tmp")
    assert copied() == (copy, {SECOND}) and files(copy) == files(made)


def test_processes_of_a_host_wait_for_the_one_that_copies(made, tmp_path, monkeypatch):
    """Threads here: the system's locks do not know the difference."""
    ready, copied, real = threading.Barrier(4), [], module._copy
    monkeypatch.setattr(module, "_copy", lambda *given: copied.append(given[2].file) or real(*given))
    with ThreadPoolExecutor(4) as processes:
        work = processes.map(lambda _: (ready.wait(), local_copy(made, str(tmp_path), shown=False))[1], range(4))
        (copy,) = set(work)
    assert files(copy) == files(made) and sorted(copied) == [FIRST, SECOND]


@NEEDS_GCSFS
def test_caches_that_cannot_be_and_files_that_are_missing_or_changed_are_named(stored, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raises("config.data.local_cache=gs://bucket/x: must be a folder", local_copy, stored, "gs://bucket/x", shown=False)
    (tmp_path / "file").touch()
    raises("file: cannot be written", local_copy, stored, str(tmp_path / "file"), shown=False)
    data = store.objects[f"corpus/{SECOND}"].data
    store.put(f"corpus/{SECOND}", bytes([data[0] ^ 1]) + data[1:])
    raises(f"gs://bucket/corpus/{SECOND}: was changed", local_copy, stored, str(tmp_path / "ssd"), shown=False)
    store.delete(f"corpus/{SECOND}")
    raises(f"gs://bucket/corpus/{SECOND}: cannot be copied", local_copy, stored, str(tmp_path / "ssd"), shown=False)
    assert not [path for path in (tmp_path / "ssd").rglob("*") if path.name in (NAME, SECOND)]
