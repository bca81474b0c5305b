import pytest

from simcse_jax.data.corpus.sealed import read_sealed, write_sealed
from simcse_jax.errors import UserError


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
