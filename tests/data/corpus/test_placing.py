"""Files of a corpus get their names when they are whole."""

import pytest
from support.object_store import NEEDS_GCSFS, Refusal

from simcse_jax.data.corpus.placing import put_in_place, remove_leftovers, temporary_of, written_to
from simcse_jax.errors import UserError
from simcse_jax.host.storage import as_path


def test_processes_without_locks_write_into_files_of_their_own(tmp_path):
    names = {temporary_of(tmp_path / "shard-00000-00001") for _ in range(3)}
    assert len(names) == 3
    for name in names:
        name.touch()
    remove_leftovers(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("texts", [False, True])
def test_a_file_and_its_texts_get_their_names_after_the_block(texts, tmp_path):
    with written_to(tmp_path / "shard", texts) as path:
        path.write_text("rows")
        path.with_name(f"{path.name}.text").write_text("texts")
        assert not (tmp_path / "shard").exists()
    assert (tmp_path / "shard").read_text() == "rows"
    assert {file.name for file in tmp_path.iterdir()} == {"shard", *["shard.text"] * texts}


def test_the_file_has_its_name_after_its_texts(tmp_path, monkeypatch):
    placed = []
    monkeypatch.setattr(
        "simcse_jax.data.corpus.placing.put_in_place",
        lambda written, path: (placed.append(path.name), put_in_place(written, path)),
    )
    with written_to(tmp_path / "shard", texts=True) as path:
        path.write_text("rows")
        path.with_name(f"{path.name}.text").write_text("texts")
    assert placed == ["shard.text", "shard"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_file_that_could_not_be_written(error, tmp_path):
    expected = UserError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected), written_to(tmp_path / "shard", texts=True) as path:
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
    target = as_path("gs://bucket/out") / "shard"
    refused = pytest.raises(UserError, match=r"gs://bucket/out/shard: cannot")
    with refused, written_to(target, texts=False) as path:
        path.write_bytes(bytes(20 << 20))
    assert len(parts) >= 2 and not store.names("out/")
    with written_to(target, texts=False) as path:
        path.write_bytes(bytes(20 << 20))
    assert len(store.objects["out/shard"].data) == 20 << 20
