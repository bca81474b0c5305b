import pytest
from support.object_store import NEEDS_GCSFS, WRITING

from simcse_jax.errors import UserError
from simcse_jax.host.locks import held
from simcse_jax.host.owner import Owner
from simcse_jax.host.storage import Folder, as_path, check_lock, remove, write_atomically

pytestmark = NEEDS_GCSFS


def change(path: Folder, how: str) -> None:
    """Changes an object in each of the ways in which the package does."""
    if how == "removed":
        remove(path)
    else:
        write_atomically(path, "mine")


@pytest.mark.parametrize("moment", ["before", "between its look at the token and its write"])
@pytest.mark.parametrize("how", ["written", "removed"])
def test_the_later_job_owns_the_folder_and_the_earlier_one_changes_nothing_that_it_wrote(
    store, monkeypatch, how, moment
):
    store.objects.clear()
    folder = as_path("gs://bucket/lost")

    def take_over():
        Owner(folder).write(folder / "file", "theirs")

    with held(folder):
        change(folder / "file", how)
        assert (how == "removed") == ("lost/file" not in store.objects)
        store.put("lost/file", b"mine")
        check_lock(folder / "file")
        if moment == "before":
            take_over()
        else:
            looks, real = iter([take_over]), Owner.check
            # The later job's own look comes in between, and is its first.
            monkeypatch.setattr(Owner, "check", lambda owner: (real(owner), next(looks, lambda: None)()))
        for _ in range(2):
            with pytest.raises(UserError, match=r"^gs://bucket/lost: another job has taken over$"):
                change(folder / "file", how)
    assert store.text("lost/file") == "theirs"
    assert store.names("lost/") == ["lost/.lock", "lost/file"]  # the earlier job leaves the token of the later one


def test_a_job_that_ends_leaves_no_token_and_one_that_was_killed_stops_nobody(store):
    folder = as_path("gs://bucket/killed")
    Owner(folder)
    with held(folder):
        write_atomically(folder / "file", "mine")
    assert store.names("killed/") == ["killed/file"]


def test_a_late_write_of_an_earlier_owner_does_not_stop_the_next_one(store, monkeypatch):
    folder, late = as_path("gs://bucket/late"), iter([b"theirs"])
    with held(folder):
        monkeypatch.setattr(Owner, "check", lambda owner: [store.put("late/file", data) for data in late])
        write_atomically(folder / "file", "mine")
        assert store.text("late/file") == "mine"


def test_a_store_that_refuses_is_reported_in_one_line(store, monkeypatch):
    folder = as_path("gs://bucket/refused")
    with held(folder):
        monkeypatch.setattr(store, "refused", WRITING)
        with pytest.raises(UserError, match=r"^gs://bucket/refused/file: cannot be written: .*permission"):
            write_atomically(folder / "file", "")
        monkeypatch.setattr(store, "refused", None)
        write_atomically(folder / "file", "")
    monkeypatch.setattr(store, "refused", WRITING)
    with pytest.raises(UserError, match=r"^gs://bucket/refused/\.lock: cannot be written: .*permission"):
        held(folder).__enter__()
