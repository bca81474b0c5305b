import pytest
from support.object_store import NEEDS_GCSFS

from simcse_jax.data.corpus.patterns import expand
from simcse_jax.errors import UserError


def test_patterns_are_files_in_the_order_of_their_names(tmp_path):
    for name in ("b.txt", "a.txt", "c[1].txt"):
        (tmp_path / name).write_text("a cat\n")
    assert expand([f"{tmp_path}/*.txt"], "--data") == [f"{tmp_path}/{name}.txt" for name in ("a", "b", "c[1]")]
    assert expand([f"{tmp_path}/c[1].txt", f"{tmp_path}/b.txt,{tmp_path}/a.txt", "hf:x[1]"], "--data")[0].endswith(
        "c[1].txt"
    )
    with pytest.raises(UserError, match="no file has such a name"):
        expand([f"{tmp_path}/*.csv"], "--data")
    for again in (f"{tmp_path}/a.txt", f"{tmp_path}/./a.txt"):
        with pytest.raises(UserError, match=r"a\.txt is named twice"):
            expand([f"{tmp_path}/*.txt", again], "--data")


@NEEDS_GCSFS
def test_patterns_in_a_bucket(store):
    for name in ("text/b.txt", "text/a.txt", "other/c.txt"):
        store.put(name, b"a cat\n")
    assert expand(["gs://bucket/text/*.txt"], "--data") == ["gs://bucket/text/a.txt", "gs://bucket/text/b.txt"]
