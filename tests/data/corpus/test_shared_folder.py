import os

import pytest
from support.object_store import NEEDS_GCSFS, Refusal

from simcse_jax.data.corpus.shared_folder import (
    Plan,
    check_own,
    check_unchanged,
    claimed,
    enter,
    hash_file,
    leave,
    put_in_place,
    read_sealed,
    remove_leftovers,
    size_of,
    stamp_of,
    temporary_of,
    write_sealed,
    written_to,
)
from simcse_jax.errors import UserError
from simcse_jax.host.hidden import PLAN
from simcse_jax.host.storage import as_path


@pytest.fixture
def plan(tmp_path):
    source = tmp_path / "a.txt"
    source.write_text("a cat\n")
    return Plan(
        {"sources": [{"name": str(source), "bytes": 6}], "size": 1}, {str(source): stamp_of(str(source)).written}
    )


def test_a_folder_is_for_one_plan(plan, tmp_path):
    folder = tmp_path / "out"
    enter(folder, plan, "another job's")
    enter(folder, plan, "another job's")
    with pytest.raises(UserError, match="is another job's: size was 1, is 2; choose another folder"):
        enter(folder, plan._replace(key=plan.key | {"size": 2}), "another job's")
    fewer = {name: value for name, value in plan.key.items() if name != "size"}
    with pytest.raises(UserError, match="size was 1, is None"):
        enter(folder, plan._replace(key=fewer), "another job's")


@pytest.mark.parametrize("dot", ["", "."])
def test_a_folder_keeps_the_names_that_it_has(plan, tmp_path, dot):
    folder, other = tmp_path / "out", "" if dot else "."
    entered = enter(folder, plan._replace(dot=dot), "another job's")
    assert entered.dot == dot and [path.name for path in folder.iterdir()] == [f"{dot}{PLAN}"]
    again = enter(folder, plan._replace(dot=other), "another job's")
    assert again == entered and again.own(folder, "x") == folder / f"{dot}x"
    with pytest.raises(UserError, match="is another job's: size was 1, is 2"):
        enter(folder, Plan(plan.key | {"size": 2}, plan.stamps, other), "another job's")
    (folder / f"{other}{PLAN}").write_bytes((folder / f"{dot}{PLAN}").read_bytes())
    with pytest.raises(UserError, match=r"out: has \.plan\.json and plan\.json, which an earlier version wrote"):
        enter(folder, plan, "another job's")


def test_what_should_not_be_begun_leaves_nothing(plan, tmp_path):
    def refuse():
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        enter(tmp_path / "out", plan, "another job's", refuse)
    assert not (tmp_path / "out").exists()
    enter(tmp_path / "out", plan, "another job's")
    enter(tmp_path / "out", plan, "another job's", refuse)  # it was begun


def test_a_folder_with_other_files_is_refused(plan, tmp_path):
    (tmp_path / "out").mkdir()
    check_own(tmp_path / "out")
    (tmp_path / "out" / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"has other files \(thesis\.tex\) and no plan;"):
        enter(tmp_path / "out", plan, "another job's")


def test_sources_that_were_written_to_are_named(plan, tmp_path):
    enter(tmp_path / "out", plan, "another job's")
    check_unchanged(tmp_path / "out", plan)
    os.utime(tmp_path / "a.txt", (1, 1))
    check_unchanged(tmp_path / "out", plan, [])
    with pytest.raises(UserError, match=r"a\.txt: was changed since"):
        check_unchanged(tmp_path / "out", plan)


def test_it_is_left_as_it_was_if_nothing_was_made(plan, tmp_path):
    enter(tmp_path / "out", plan, "another job's")
    with claimed(tmp_path / "out" / "part"):
        leave(tmp_path / "out", plan)
        assert (tmp_path / "out" / PLAN).exists()
    for name in ("rows-0.json", ".DS_Store", "._plan.json"):
        (tmp_path / "out" / name).touch()
    leave(tmp_path / "out", plan)
    assert (tmp_path / "out" / PLAN).exists()
    leave(tmp_path / "out", plan, "rows-*.json")
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_command_is_named_whatever_its_sources_say(plan, tmp_path):
    enter(tmp_path / "out", plan, "another job's")
    (source,) = plan.key["sources"]
    for message, other in {
        "column was None, is text": {**source, "column": "text"},
        "bytes was 6, is None": {"name": source["name"]},
    }.items():
        with pytest.raises(UserError, match=rf"is another job's: \S*a\.txt: {message}"):
            enter(tmp_path / "out", plan._replace(key={"sources": [other]}), "another job's")


def test_a_kill_while_the_plan_is_written_leaves_a_folder_that_can_be_begun(plan, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f".{PLAN}.tmp").touch()
    enter(tmp_path / "out", plan, "another job's")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [PLAN]


@NEEDS_GCSFS
def test_a_folder_in_a_bucket(plan, store):
    enter(as_path("gs://bucket/out"), plan, "another job's")
    with pytest.raises(UserError, match="is another job's"):
        enter(as_path("gs://bucket/out"), plan._replace(key=plan.key | {"size": 2}), "another job's")


def test_work_is_one_process_s_at_a_time(tmp_path):
    path = tmp_path / "shard"
    with claimed(path) as mine, claimed(path) as again, claimed(tmp_path / "other") as other:
        assert (mine, again, other) == (True, False, True)
    with claimed(path) as mine:
        assert mine
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_taken_over(tmp_path):
    (tmp_path / ".shard.lock").touch()
    with claimed(tmp_path / "shard") as mine:
        assert mine


def test_an_error_in_the_work_frees_it(tmp_path):
    with pytest.raises(ValueError, match="x"), claimed(tmp_path / "shard"):
        raise ValueError("x")
    with claimed(tmp_path / "shard") as mine:
        assert mine


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"), claimed(tmp_path / "file" / "shard"):
        pass


@NEEDS_GCSFS
def test_work_in_a_bucket_is_one_process_s_too(store):
    path = as_path("gs://bucket/corpus") / "shard"
    with claimed(path) as mine, claimed(path) as again:
        assert (mine, again) == (True, False)
    assert not store.names("corpus/")


def test_what_was_written_is_read_and_a_changed_file_is_named(tmp_path):
    path = tmp_path / "facts.json"
    assert read_sealed(path) is None
    write_sealed(path, {"rows": 3, "é": [1, {"a": None}]})
    assert read_sealed(path) == {"rows": 3, "é": [1, {"a": None}]}
    for before, after in (("3", "4"), ('"rows"', '"cows"'), ('"seal"', '"sale"')):
        text = path.read_text()
        path.write_text(text.replace(before, after, 1))
        with pytest.raises(UserError, match=r"facts\.json: was changed"):
            read_sealed(path)
        path.write_text(text)
    path.write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"facts\.json: cannot be read"):
        read_sealed(path)


def test_a_file_that_is_written_again_has_another_stamp(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a cat\n")
    before = stamp_of(str(path))
    assert before == stamp_of(str(path)) and before.bytes == 6
    os.utime(path, (1, 1))
    assert stamp_of(str(path)) != before
    path.unlink()
    with pytest.raises(UserError, match=r"a\.txt: cannot be read"):
        stamp_of(str(path))


def test_datasets_and_similarity_sets_have_versions(tmp_path):
    data = pytest.importorskip("datasets").Dataset
    found = []
    for words in (["a"], ["b"]):
        data.from_dict({"text": words}).save_to_disk(tmp_path / "hub")
        found.append(stamp_of(f"hf:{tmp_path}/hub"))
    assert found[0] != found[1] and found[1] == stamp_of(f"hf:{tmp_path}/hub")
    folder = tmp_path / "STS/STSBenchmark"
    folder.mkdir(parents=True)
    (folder / "sts-train.csv").write_text("x\n")
    before = stamp_of(f"sts:{tmp_path}")
    assert before == stamp_of(f"sts:{tmp_path}")
    os.utime(folder / "sts-train.csv", (1, 1))
    assert stamp_of(f"sts:{tmp_path}") != before


def test_sizes_and_hashes_of_files(tmp_path):
    assert size_of(tmp_path / "none") is None
    (tmp_path / "a").write_bytes(b"abc")
    assert size_of(tmp_path / "a") == 3
    assert hash_file(tmp_path / "a").startswith("ba7816bf")
    for look in (size_of, hash_file):
        with pytest.raises(UserError, match="cannot be read"):
            look(tmp_path / "a" / "b")


@NEEDS_GCSFS
def test_an_object_that_is_written_again_has_another_stamp(store):
    store.put("a.txt", b"a cat\n")
    assert size_of(as_path("gs://bucket/a.txt")) == stamp_of("gs://bucket/a.txt").bytes == 6
    assert size_of(as_path("gs://bucket/none")) is None


def test_processes_without_locks_write_into_files_of_their_own(tmp_path):
    names = {temporary_of(tmp_path / "shard-00000-00001") for _ in range(3)}
    assert len(names) == 3
    for name in names:
        name.touch()
    remove_leftovers(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("texts", [False, True])
def test_a_file_and_its_texts_get_their_names_after_the_block(texts, tmp_path):
    with written_to(tmp_path / "shard", *[".text"] * texts) as path:
        for ending, content in {"": "rows", **({".text": "texts"} if texts else {})}.items():
            path.with_name(path.name + ending).write_text(content)
        assert not (tmp_path / "shard").exists()
    assert (tmp_path / "shard").read_text() == "rows"
    assert {file.name for file in tmp_path.iterdir()} == {"shard", *["shard.text"] * texts}


def test_the_file_has_its_name_after_its_texts(tmp_path, monkeypatch):
    placed = []
    monkeypatch.setattr(
        "simcse_jax.data.corpus.shared_folder.put_in_place",
        lambda written, path: (placed.append(path.name), put_in_place(written, path)),
    )
    with written_to(tmp_path / "shard", ".text") as path:
        path.write_text("rows")
        path.with_name(f"{path.name}.text").write_text("texts")
    assert placed == ["shard.text", "shard"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_file_that_could_not_be_written(error, tmp_path):
    expected = UserError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected), written_to(tmp_path / "shard", ".text") as path:
        path.write_text("rows")
        raise error
    assert not list(tmp_path.iterdir())


@NEEDS_GCSFS
def test_an_upload_that_is_refused_midway_leaves_no_part(store, monkeypatch):
    """The store answers again afterwards, when the client closes what it has open."""
    parts, take = [], store.continue_upload

    def refuse_the_second(*part):
        parts.append(part)
        if len(parts) == 2:
            raise Refusal(403, "no")
        return take(*part)

    monkeypatch.setattr(store, "continue_upload", refuse_the_second)
    target = as_path("gs://bucket/upload") / "shard"
    refused = pytest.raises(UserError, match=r"gs://bucket/upload/shard: cannot")
    with refused, written_to(target) as path:
        path.write_bytes(bytes(20 << 20))
    assert len(parts) >= 2 and not store.names("upload/")
    with written_to(target) as path:
        path.write_bytes(bytes(20 << 20))
    assert len(store.objects["upload/shard"].data) == 20 << 20
