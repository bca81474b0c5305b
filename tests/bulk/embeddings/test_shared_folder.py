import os

import pytest
from support.data import raises
from support.object_store import NEEDS_GCSFS

from simcse_jax.bulk.embeddings import shared_folder
from simcse_jax.bulk.embeddings.shared_folder import FolderPlan, enter, leave
from simcse_jax.data.identity import stamp_of
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
    (folder / "corpus.json").rename(folder / f".{PLAN}.00ff.tmp")  # a killed process's
    enter(folder, plan)


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
    for name in (".rows-0.json", ".DS_Store", "._plan.json", ".embeddings-0.tmp"):
        (tmp_path / "out" / name).touch()
    leave(tmp_path / "out")
    assert (tmp_path / "out" / f".{PLAN}").exists()
    (tmp_path / "out" / ".embeddings-0.tmp").unlink()  # another process's, which makes a block
    leave(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    enter(tmp_path / "out", plan)
    shared_folder.check_unchanged(tmp_path / "out", plan)
    os.utime(tmp_path / "a.txt", (1, 1))
    shared_folder.check_unchanged(tmp_path / "out", plan, [])
    raises("a.txt: was changed since", shared_folder.check_unchanged, tmp_path / "out", plan)
    changed = plan._replace(stamps={name: stamp_of(name).written for name in plan.stamps})
    raises("a.txt: was changed since", enter, tmp_path / "out", changed)


@NEEDS_GCSFS
def test_a_folder_in_a_bucket_has_the_plan_of_the_first_process(plan, store, monkeypatch):
    folder, other = as_path("gs://bucket/out"), plan._replace(key=plan.key | {"size": 2})
    enter(folder, plan)
    raises("is that of other embeddings", enter, folder, other)
    read, seen = shared_folder.read_sealed, []
    # The second process looks before the first one has written.
    monkeypatch.setattr(shared_folder, "read_sealed", lambda path: read(path) if seen else seen.append(path))
    raises("is that of other embeddings", enter, folder, other)
    assert store.names("out/") == [f"out/.{PLAN}"]
