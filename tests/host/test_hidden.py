from simcse_jax.host.hidden import begun, is_hidden


def test_names_that_are_no_data_and_those_of_an_output_that_is_begun(tmp_path):
    assert [name for name in ("._a", ".a", "_SUCCESS", "a.npy", "a_") if is_hidden(name)] == ["._a", ".a", "_SUCCESS"]
    assert begun(tmp_path / "emb.npy") == (tmp_path / ".emb.npy.partial", tmp_path / ".emb.npy.state.json")
