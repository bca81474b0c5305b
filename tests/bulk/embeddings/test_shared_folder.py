import os

import pytest
from support.data import raises
from support.jobs import another_job
from support.object_store import NEEDS_GCSFS, Refusal

from simcse_jax.bulk.embeddings import shared_folder
from simcse_jax.bulk.embeddings.shared_folder import FolderPlan, claimed, enter, leave, written_to
from simcse_jax.data.identity import size_of, stamp_of
from simcse_jax.errors import UserError
from simcse_jax.host.hidden import PLAN
from simcse_jax.host.storage import as_path


@pytest.fixture
def plan(tmp_path):
    source = tmp_path / "a.txt"
    source.write_text("a cat\n")
    key = {"sources": [{"name": str(source), "bytes": 6}], "size": 1}
    return FolderPlan(key, {str(source): stamp_of(str(source)).written})


def test_a_folder_has_its_plan_and_what_is_another_program_s_is_left_alone(plan, tmp_path):
    folder = tmp_path / "out"
    for _ in range(2):
        enter(folder, plan)
    assert [path.name for path in folder.iterdir()] == [f".{PLAN}"]
    raises("size was 1, is 2", enter, folder, FolderPlan(plan.key | {"size": 2}, plan.stamps))
    folder = tmp_path / "new"
    folder.mkdir()
    shared_folder.check_own(folder)
    (folder / "corpus.json").touch()  # a corpus's, of which embeddings must not become a part
    raises("has other files (corpus.json)", shared_folder.check_own, folder)
    (folder / "corpus.json").rename(folder / f"..{PLAN}.tmp")
    enter(folder, plan)
    assert {path.name for path in folder.iterdir()} == {f".{PLAN}"}


def test_a_folder_is_for_one_plan_and_unchanged_sources_and_is_left_as_it_was_if_nothing_was_made(plan, tmp_path):
    folder, (source,) = tmp_path / "out", plan.key["sources"]
    enter(folder, plan)
    enter(folder, plan)
    without = {name: value for name, value in plan.key.items() if name != "size"}
    for message, key in (
        ("out: is that of other embeddings: size was 1, is 2;", plan.key | {"size": 2}),
        ("size was 1, is None", without),
        ("a.txt: column was None, is text", {"sources": [source | {"column": "text"}]}),
        ("a.txt: bytes was 6, is None", {"sources": [{"name": source["name"]}]}),
        (f"source 1 was {source['name']}, is b.txt", plan.key | {"sources": [{"name": "b.txt"}]}),
        (f"source 1 was {source['name']}, is missing", plan.key | {"sources": []}),
    ):
        raises(message, enter, folder, plan._replace(key=key))
    enter(tmp_path / "out", plan)
    with claimed(tmp_path / "out" / "part"):
        leave(tmp_path / "out", plan)
        assert (tmp_path / "out" / f".{PLAN}").exists()
    for name in (".rows-0.json", ".DS_Store", "._plan.json"):
        (tmp_path / "out" / name).touch()
    leave(tmp_path / "out", plan)
    assert (tmp_path / "out" / f".{PLAN}").exists()
    leave(tmp_path / "out", plan, "rows-*.json")
    assert not (tmp_path / "out").exists()
    enter(tmp_path / "out", plan)
    shared_folder.check_unchanged(tmp_path / "out", plan)
    os.utime(tmp_path / "a.txt", (1, 1))
    shared_folder.check_unchanged(tmp_path / "out", plan, [])
    raises("a.txt: was changed since", shared_folder.check_unchanged, tmp_path / "out", plan)
    changed = plan._replace(stamps={name: stamp_of(name).written for name in plan.stamps})
    raises("a.txt: was changed since", enter, tmp_path / "out", changed)


def test_work_is_one_process_s_at_a_time_and_free_after_a_kill_or_in_files_of_its_own(tmp_path):
    path = tmp_path / "shard"
    with another_job(claimed(path)), claimed(path) as again, claimed(tmp_path / "other") as other:
        assert (again, other) == (False, True)
    with pytest.raises(ValueError, match="x"), claimed(path):
        raise ValueError("x")
    with claimed(path) as mine:
        assert mine
    assert not list(tmp_path.iterdir())
    (tmp_path / ".shard.lock").touch()
    with claimed(path) as mine:
        assert mine
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file: cannot be written"), claimed(tmp_path / "file" / "shard"):
        pass


def test_a_file_gets_its_name_when_it_is_whole_or_nothing_is_left(tmp_path):
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):
        expected = UserError if isinstance(error, OSError) else KeyboardInterrupt
        with pytest.raises(expected), written_to(tmp_path / "part") as path:
            path.write_text("rows")
            raise error
        assert not list(tmp_path.iterdir())
    with written_to(tmp_path / "part") as path:
        path.write_text("rows")
        assert not (tmp_path / "part").exists()
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"part": "rows"}


@pytest.mark.parametrize("in_bucket", [False, pytest.param(True, marks=NEEDS_GCSFS)])
def test_what_kills_left_in_a_complete_folder_is_removed_and_nothing_else(tmp_path, store, in_bucket):
    folder = as_path("gs://bucket/full") if in_bucket else tmp_path
    kept = {"corpus.json", ".plan.json", ".embeddings.json", ".quantization.json", ".rows-00000.json", ".lock"}
    kept |= {"embeddings-00000-00000.parquet", ".notes.tmp"}
    left = {f".{name}.lock" for name in ("embeddings-00000-00000.parquet", "plan.json", "rows-00000.json")}
    left |= {".embeddings.json.lock", ".embeddings-00000-00000.parquet.00ff.tmp", "..embeddings.json.tmp"}
    for name in kept | left:
        (folder / name).write_bytes(b"x")
    shared_folder.remove_leftovers(folder)
    assert {path.name for path in folder.iterdir()} == kept


@NEEDS_GCSFS
def test_a_folder_in_a_bucket_has_no_part_of_an_upload_that_was_refused(plan, store, monkeypatch):
    folder = as_path("gs://bucket/out")
    enter(folder, plan)
    raises("is that of other embeddings", enter, folder, plan._replace(key=plan.key | {"size": 2}))
    with claimed(folder / "shard") as mine, claimed(folder / "shard") as again:
        assert (mine, again) == (True, False)
    assert list(store.names("out/")) == [f"out/.{PLAN}"]
    store.put("a.txt", b"a cat\n")
    assert size_of(as_path("gs://bucket/a.txt")) == stamp_of("gs://bucket/a.txt").bytes == 6
    assert size_of(as_path("gs://bucket/none")) is None
    # The store answers again afterwards, when the client closes what it has open.
    parts, take = [], store.continue_upload

    def refuse_the_second(*part):
        parts.append(part)
        if len(parts) == 2:
            raise Refusal(403, "no")
        return take(*part)

    monkeypatch.setattr(store, "continue_upload", refuse_the_second)
    target = as_path("gs://bucket/upload") / "shard"
    refused = pytest.raises(UserError, match=r"gs://bucket/upload/shard: cannot")
    with claimed(target):
        with refused, written_to(target) as path:
            path.write_bytes(bytes(20 << 20))
        assert len(parts) >= 2 and store.names("upload/") == ["upload/.shard.lock"]
        with written_to(target) as path:
            path.write_bytes(bytes(20 << 20))
    assert len(store.objects["upload/shard"].data) == 20 << 20
