import os

import pytest
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.corpus.stamps import hash_file, size_of, stamp_of
from simcse_jax.errors import UserError
from simcse_jax.host.storage import as_path


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
