"""Paths, files and folders, on a disk and in an object store.

The store is `object_store.ObjectStore`; the clients are those that speak with the real one.
"""

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from support import run
from support.forks import CONSTANTS
from support.object_store import NEEDS_GCSFS, WRITING, Refusal

from simcse_jax.errors import UserError
from simcse_jax.host import storage
from simcse_jax.host.storage import as_path, written_once


def fail(*_):
    raise OSError(28, "No space left on device")


def test_writing_leaves_the_old_file_or_the_new_one(tmp_path, monkeypatch):
    path = tmp_path / "new" / "folder" / "file"
    storage.write_atomically(path, "ä")
    storage.write_atomically(path, b"two")
    assert path.read_bytes() == b"two" and os.listdir(path.parent) == ["file"]

    def interrupt(*_):
        raise KeyboardInterrupt

    for ends, error in ((fail, UserError), (interrupt, KeyboardInterrupt)):
        monkeypatch.setattr(os, "fsync", ends)
        with pytest.raises(error) as raised:
            storage.write_atomically(path, "three")
        assert path.read_bytes() == b"two" and os.listdir(path.parent) == ["file"]
        assert error is not UserError or str(raised.value) == f"{path}: cannot be written: No space left on device"


# Contents, and how their refusal begins.
NO_JSON = {"": "not valid JSON: Expecting value", "{": "not valid JSON", "\udcff{}": "not valid JSON: .*can't decode"}
NO_JSON |= {"\ufeff{}": "not valid JSON: .*BOM"}
NO_JSON |= {'{"a": ' + "[" * 100000 + "]" * 100000 + "}": "not valid JSON: nested too deeply$"}
NO_JSON |= {'{"\\ud800": 1}': r"holds a broken character \(U\+D800 alone\); remove or replace it"}
NO_JSON |= {'{"a": ["\\uDC00"]}': r"holds a broken character \(U\+DC00 alone\)"}
NO_JSON |= {'{"a": ' + "1" * 5000 + "}": "not valid JSON: .*limit", "[1]": "not a JSON object$"}
NO_JSON |= {"null": "not a JSON object$"}


def test_what_is_no_json_object_is_refused(tmp_path):
    path = tmp_path / "a.json"
    for content, message in NO_JSON.items():
        path.write_bytes(content.encode(errors="surrogateescape"))
        with pytest.raises(UserError, match=rf"^{path}: {message}"):
            storage.read_json(path)


def test_folders_that_cannot_be_read_are_refused(tmp_path, monkeypatch):
    storage.check_readable(tmp_path)
    storage.check_readable(tmp_path / "new")
    with pytest.raises(UserError, match=r"^'.*\\udcff': its name is not UTF-8; rename the folder$"):
        storage.check_readable(tmp_path / "\udcff")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read anything
    with pytest.raises(UserError, match=f"^{tmp_path}: cannot be read: Permission denied$"):
        storage.check_readable(tmp_path)


def test_a_file_of_json_is_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1, "a": "\\ud83c\\udfb8 \\\\ud800"}')  # a pair, and a backslash with letters
    assert storage.read_json(path) == {"a": "🎸 \\ud800"}
    assert storage.parse_json("[1]", "line 1", list) == [1]
    with pytest.raises(UserError, match=r"a\.json: not a JSON list$"):
        storage.read_json(path, kind=list)
    for wrong in (path / "b", tmp_path, tmp_path / "b.json"):
        with pytest.raises(UserError, match=f"^{wrong}: cannot be read: "):
            storage.read_json(wrong)
    with pytest.raises(UserError, match=r"cannot be written: Not a directory$"):
        storage.write_atomically(path / "run" / "run.json", "{}")


def test_a_link_stays_and_what_it_points_to_is_replaced_with_its_mode(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("one")
    (tmp_path / "there" / "file").chmod(0o640)
    (tmp_path / "link").symlink_to("there/file")
    (tmp_path / "new").symlink_to("there/later")
    (tmp_path / "there" / ".file.tmp").symlink_to(tmp_path / "other")  # not followed
    for name in ("link", "new"):
        storage.write_atomically(tmp_path / name, "two")
        assert (tmp_path / name).is_symlink() and (tmp_path / name).read_text() == "two"
    assert stat.S_IMODE((tmp_path / "there" / "file").stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path / "there")) == ["file", "later"] and not (tmp_path / "other").exists()


def test_one_process_at_a_time_writes_a_file(tmp_path):
    path = tmp_path / "file"
    with storage.replacing_file(path) as file:
        file.write(b"one")
        with ThreadPoolExecutor(1) as thread, pytest.raises(UserError, match="file: another job is writing there; "):
            thread.submit(storage.write_atomically, path, "two").result()
    assert path.read_text() == "one" and os.listdir(tmp_path) == ["file"]
    (tmp_path / ".file.tmp").write_text("left by a kill")
    storage.write_atomically(path, "2")
    assert path.read_text() == "2" and os.listdir(tmp_path) == ["file"]


def test_json_is_written_in_full_or_not_at_all(tmp_path):
    name = os.fsdecode(b"a\xff")  # half a surrogate pair becomes an escape
    storage.write_json(tmp_path / "a.json", {"a": [1]})
    assert storage.read_json(tmp_path / "a.json") == {"a": [1]} and (tmp_path / "a.json").read_text().endswith("}\n")
    storage.write_atomically(tmp_path / "a.json", json.dumps({"name": name}, ensure_ascii=False))
    with pytest.raises(UserError, match=r"a\.json: cannot be written: Out of range float values"):
        storage.write_json(tmp_path / "a.json", {"a": float("nan")})
    assert json.loads((tmp_path / "a.json").read_text()) == {"name": name} and os.listdir(tmp_path) == ["a.json"]


def test_standard_output_is_written_into():
    code = "from simcse_jax.host.storage import write_atomically as w; from pathlib import Path\n"
    code += "print('one', end=' '); w(Path('/dev/stdout'), 'two'); print(' three')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).stdout == b"one two three\n"


def test_files_of_macos():
    names = (".DS_Store", "._a.json", "a.json", ".a", "._", "DS_Store")
    assert [storage.is_of_macos(name) for name in names] == [True, True, False, False, True, False]


def test_a_fingerprint_depends_on_shapes_types_and_contents():
    array = np.arange(6, dtype=np.int32)
    different = [array.reshape(2, 3), array.astype(np.int64), array[::-1], np.arange(1, 7, dtype=np.int32)]
    prints = [storage.sha256(each) for each in (array, *different)] + [storage.sha256(array, array)]
    assert len(set(prints)) == len(prints) and storage.sha256(array.copy()) == prints[0]
    assert storage.sha256(array.reshape(2, 3).T) == storage.sha256(np.ascontiguousarray(array.reshape(2, 3).T))
    # Runs have recorded such fingerprints.
    assert prints[0] == "0a26303e1bb1da4761bccc447c4b64c2c37731cc3624848ecf4cc6fadeb29777"


def test_names_that_are_no_paths_are_refused_and_a_folder_need_not_exist(tmp_path):
    for name in ("s3://bucket/run", "http://host/run", "gs://", "gs:///run"):
        with pytest.raises(UserError, match=f"^{name}: must be a folder on a disk or gs://BUCKET/FOLDER$"):
            storage.as_path(name)
    for name in ("a long sentence " * 30, "~nobody-of-this-name/runs"):
        with pytest.raises(UserError, match="not a path: "):
            storage.local_path(name)
    assert storage.as_path(str(tmp_path / "none")) == tmp_path / "none"
    assert storage.as_path("~") == Path.home()


def test_without_gcsfs_the_package_to_install_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(UserError) as error:
        storage.as_path("gs://bucket/run")
    assert str(error.value) == 'gs://bucket/run: not installed: gcsfs; run: pip install "simcse_jax[gcs]"'


@NEEDS_GCSFS
def test_the_store_is_read_and_written_like_a_folder_and_no_bucket_is_created(store):
    folder = storage.as_path("gs://bucket/some/folder")
    assert storage.is_remote(folder) and not folder.exists()
    storage.write_atomically(folder / "file", "one")
    storage.write_atomically(folder / "file", "two\n" * 100_000)
    assert store.names("some") == ["some/folder/file"]
    assert (folder / "file").read_text() == store.text("some/folder/file") == "two\n" * 100_000
    assert folder.is_dir() and (folder / "file").is_file() and [path.name for path in folder.iterdir()] == ["file"]
    with pytest.raises(UserError, match="there is no bucket other, or no permission to see it"):
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
    """It takes a user's client half a minute to give up."""
    environment = {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:9", CONSTANTS: ""}
    done = run("export", "--workdir=gs://bucket/run", "--output", tmp_path / "export", env=environment)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("error: gs://bucket/run: cannot be reached: Cannot connect to host 127.0.0.1:9")


def test_a_file_that_is_written_once_is_whole_and_the_first_one_s(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "part"
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):
        expected = UserError if isinstance(error, OSError) else KeyboardInterrupt
        with pytest.raises(expected), written_once(path) as temporary:
            temporary.write_text("rows")
            raise error
        assert not list(path.parent.iterdir())
    with written_once(path) as temporary:
        temporary.write_text("rows")
        assert not path.exists()
        with written_once(path) as faster:
            faster.write_text("first")
    assert {file.name: file.read_text() for file in path.parent.iterdir()} == {"part": "first"}
    path.unlink()
    monkeypatch.setattr(os, "link", lambda *paths: (_ for _ in ()).throw(PermissionError(1, "no links here")))
    with written_once(path) as temporary:
        temporary.write_text("rows")
    assert {file.name: file.read_text() for file in path.parent.iterdir()} == {"part": "rows"}


@NEEDS_GCSFS
def test_an_object_that_is_written_once_is_whole_and_the_first_one_s(store, monkeypatch):
    path, parts, take = as_path("gs://bucket/folder") / "part", [], store.continue_upload

    def refuse_the_second(*part):  # the store answers again afterwards, when the client closes what it has open
        parts.append(part)
        if len(parts) == 2:
            raise Refusal(403, "no")
        return take(*part)

    monkeypatch.setattr(store, "continue_upload", refuse_the_second)
    with pytest.raises(UserError, match=r"gs://bucket/folder/part: cannot be written"), written_once(path) as file:
        file.write_bytes(bytes(20 << 20))
    assert not store.names("folder/")
    for content in (b"first", b"second"):
        with written_once(path) as file:
            file.write_bytes(content)
    with monkeypatch.context() as context:  # the other one appears between the look and the upload
        context.setattr(type(path), "exists", lambda path: False)
        with written_once(path) as file:
            file.write_bytes(b"third")
    assert store.text("folder/part") == "first"
