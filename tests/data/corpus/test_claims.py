import pytest
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.corpus.claims import claimed
from simcse_jax.errors import UserError
from simcse_jax.host.storage import as_path


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
