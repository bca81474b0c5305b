import pytest
from support.object_store import NEEDS_GCSFS

from simcse_jax.errors import UserError
from simcse_jax.host.hidden import begun, dot_before
from simcse_jax.host.storage import as_path


def test_names_have_a_dot_unless_an_earlier_version_wrote_one_of_them_or_began_the_output(tmp_path):
    folder = tmp_path / "out"
    assert dot_before(folder, "a.json") == "." and dot_before(folder, "a.json", new="") == ""
    folder.mkdir()
    (folder / ".a.json").touch()
    assert dot_before(folder, "a.json", "b.json", new="") == "."
    (folder / "b.json").touch()
    assert dot_before(folder, "b.json") == ""
    with pytest.raises(UserError, match=r"out: has \.a\.json and b\.json, which an earlier version wrote"):
        dot_before(folder, "a.json", "b.json")
    output = tmp_path / "emb.npy"
    assert begun(output) == (tmp_path / ".emb.npy.partial", tmp_path / ".emb.npy.state.json")
    (tmp_path / "emb.npy.partial").touch()  # records alone are of no use
    assert begun(output)[0] == tmp_path / ".emb.npy.partial"
    (tmp_path / "emb.npy.state.json").touch()
    assert begun(output) == (tmp_path / "emb.npy.partial", tmp_path / "emb.npy.state.json")


@NEEDS_GCSFS
def test_names_in_a_bucket(store):
    folder = as_path("gs://bucket/out")
    assert dot_before(folder, "a.json") == "."
    store.put("out/a.json", b"{}")
    assert dot_before(folder, "a.json") == ""
    store.put("out/.a.json", b"{}")
    with pytest.raises(UserError, match=r"has \.a\.json and a\.json"):
        dot_before(folder, "a.json")
