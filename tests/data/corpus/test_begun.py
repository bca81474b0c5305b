import os

import pytest
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.corpus.begun import Plan, check_own, check_unchanged, enter, leave
from simcse_jax.data.corpus.claims import claimed
from simcse_jax.data.corpus.stamps import stamp_of
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
