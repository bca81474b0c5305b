"""Paths, files and folders, on a disk and in an object store.

The store is `object_store.ObjectStore`; the clients are those that speak with the real one.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support import ROOT, run
from support.object_store import NEEDS_GCSFS, WRITING

from simcse_jax import storage
from simcse_jax.errors import UserError


def test_writing_leaves_the_old_file_or_the_new_one(tmp_path, monkeypatch):
    path = tmp_path / "new" / "folder" / "file"
    storage.write_atomically(path, "ä")
    storage.write_atomically(path, b"two")
    assert path.read_bytes() == b"two" and os.listdir(path.parent) == ["file"]

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UserError, match=f"^{path}: cannot be written: No space left on device$"):
        storage.write_atomically(path, "three")
    assert path.read_bytes() == b"two"


def test_a_folder_that_cannot_be_written_is_reported_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be written: Not a directory$"):
        storage.write_atomically(tmp_path / "file" / "run" / "run.json", "{}")


def test_a_folder_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    folder = tmp_path / "deep" / "model"
    with storage.replacing(folder) as new:
        (new / "a").write_text("1")
        assert not folder.exists()
    (tmp_path / "deep" / ".model.new").mkdir()  # left by a killed process
    with storage.replacing(folder) as new:
        (new / "b").write_text("2")
        assert os.listdir(folder) == ["a"]
    assert os.listdir(folder) == ["b"] and os.listdir(tmp_path / "deep") == ["model"]
    with pytest.raises(ZeroDivisionError), storage.replacing(folder) as new:
        (new / "c").write_text("3")
        raise ZeroDivisionError
    assert os.listdir(folder) == ["b"] and os.listdir(tmp_path / "deep") == ["model"]


def test_a_folder_that_cannot_be_replaced_is_unchanged(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "a").write_text("1")
    rename = os.rename

    def fail(source, target):
        if str(source).endswith(".new"):
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(OSError, match="No space left"), storage.replacing(tmp_path / "model"):
        pass
    assert os.listdir(tmp_path) == ["model"] and os.listdir(tmp_path / "model") == ["a"]


def test_outputs_need_an_existing_folder(tmp_path):
    (tmp_path / "file").write_text("")
    assert storage.output_file(str(tmp_path / "new.json")) == tmp_path / "new.json"
    for name in (tmp_path, tmp_path / "none" / "new.json"):
        with pytest.raises(UserError, match=f"^--output {name}: must be a file in a folder that exists$"):
            storage.output_file(str(name))
    assert storage.output_folder(str(tmp_path / "a" / "b")).is_dir()
    for name, message in (
        (tmp_path / "file", "is a file"),
        ("gs://b/x", "a folder on a disk"),
        ("/proc/x", "cannot be"),
    ):
        with pytest.raises(UserError, match=f"^--page {name}: .*{message}"):
            storage.output_folder(str(name), "--page")


def test_json_must_be_an_object_or_a_list_as_requested(tmp_path):
    path = tmp_path / "a.json"
    storage.write_json(path, {"a": [1]})
    assert storage.read_json(path) == {"a": [1]} and path.read_text().endswith("}\n")
    with pytest.raises(UserError, match=r"a\.json: not a JSON list$"):
        storage.read_json(path, kind=list)
    path.write_text("{")
    with pytest.raises(UserError, match=r"a\.json: not valid JSON: "):
        storage.read_json(path)
    with pytest.raises(UserError, match=r"b\.json: cannot be read: No such file"):
        storage.read_json(tmp_path / "b.json")


def test_a_fingerprint_depends_on_shapes_types_and_contents():
    array = np.arange(6, dtype=np.int32)
    different = [array.reshape(2, 3), array.astype(np.int64), array[::-1], np.arange(1, 7, dtype=np.int32)]
    prints = [storage.sha256(each) for each in (array, *different)] + [storage.sha256(array, array)]
    assert len(set(prints)) == len(prints) and storage.sha256(array.copy()) == prints[0]
    assert storage.sha256(array.reshape(2, 3).T) == storage.sha256(np.ascontiguousarray(array.reshape(2, 3).T))
    # Runs have recorded such fingerprints.
    assert prints[0] == "0a26303e1bb1da4761bccc447c4b64c2c37731cc3624848ecf4cc6fadeb29777"


@pytest.mark.parametrize("name", ["s3://bucket/run", "http://host/run", "gs://", "gs:///run"])
def test_only_google_cloud_storage_buckets_are_supported(name):
    with pytest.raises(UserError, match=f"^{name}: must be a folder on a disk or gs://BUCKET/FOLDER$"):
        storage.as_path(name)


@pytest.mark.parametrize("name", ["a long sentence " * 30, "~nobody-of-this-name/runs"])
def test_an_impossible_path_is_reported_in_one_line(name):
    with pytest.raises(UserError, match="not a path: "):
        storage.local_path(name)


def test_a_folder_need_not_exist(tmp_path):
    assert storage.as_path(str(tmp_path / "none")) == tmp_path / "none"
    assert storage.as_path("~") == Path.home()


def test_without_gcsfs_the_package_to_install_is_named():
    code = "import sys; sys.modules['gcsfs'] = None; from simcse_jax import storage; storage.as_path('gs://bucket/run')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].endswith(
        "UserError: gs://bucket/run: the package that reads it is missing; pip install 'simcse_jax[gcs]'"
    )


@NEEDS_GCSFS
def test_the_store_is_read_and_written_like_a_folder(store):
    folder = storage.as_path("gs://bucket/some/folder")
    assert storage.is_remote(folder) and not folder.exists()
    storage.write_atomically(folder / "file", "one")
    storage.write_atomically(folder / "file", "two\n" * 100_000)
    assert store.names("some") == ["some/folder/file"]
    assert (folder / "file").read_text() == store.text("some/folder/file") == "two\n" * 100_000
    assert folder.is_dir() and (folder / "file").is_file() and [path.name for path in folder.iterdir()] == ["file"]


@NEEDS_GCSFS
def test_a_missing_bucket_is_not_created(store):
    with pytest.raises(UserError, match="there is no bucket other, or no right to see it"):
        storage.as_path("gs://other/run")
    assert not any(request.startswith("POST /storage/v1/b?") for request in store.requests)


@NEEDS_GCSFS
def test_a_store_that_refuses_is_reported_in_one_line(store, monkeypatch, capfd):
    folder = storage.as_path("gs://bucket/refused")
    monkeypatch.setattr(store, "refused", WRITING)
    with pytest.raises(UserError, match=r"^gs://bucket/refused/file: cannot be written: Forbidden: .* permission$"):
        storage.write_atomically(folder / "file", "one")
    monkeypatch.setattr(store, "refused", "")
    with pytest.raises(UserError, match=r"^gs://bucket/refused: cannot be reached: Forbidden: .* permission$"):
        storage.as_path("gs://bucket/refused")
    assert not store.names("refused") and capfd.readouterr().err == ""


@NEEDS_GCSFS
@pytest.mark.slow
def test_a_store_that_cannot_be_reached_is_reported_in_one_line(tmp_path):
    """It takes the client half a minute to give up."""
    environment = {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:9", "NO_GCE_CHECK": "true"}
    done = run("export", "--workdir=gs://bucket/run", "--output", tmp_path / "export", env=environment)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("error: gs://bucket/run: cannot be reached: Cannot connect to host 127.0.0.1:9")


def test_a_store_without_network_is_reported_at_once(monkeypatch):
    pytest.importorskip("gcsfs")
    for name in ("STORAGE_EMULATOR_HOST", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(storage, "STORE", ("127.0.0.1", 1))
    with pytest.raises(UserError, match=r"^gs://bucket/run: cannot be reached: 127\.0\.0\.1: Connection refused$"):
        storage.as_path("gs://bucket/run")
