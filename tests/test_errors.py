import pytest

from simcse_jax.errors import UserError, broken, hint, in_command, installed, near, no_such, option, reason, require


def test_near_names_reasons_arguments_broken_characters_and_missing_packages_are_named_in_a_line(tmp_path, monkeypatch):
    assert hint("pooller", ["pooler", "dropout"], "config.") == "; the nearest one is config.pooler"
    assert hint("zzz", ["pooler"]) == ""
    assert near("geometri", ["geometry", "demo"]) == ["geometry"]
    assert near("aab", ["aaa", "abb", "aac", "aad", "z"]) == ["abb", "aad", "aac"]
    assert near("zzz", ["pooler"]) == [] and near("zzz", ["pooler"], cutoff=0) == ["pooler"]
    error = no_such("--tasks", "task", "STS21", ("STS12", "MR"))
    assert isinstance(error, UserError)
    assert str(error) == "--tasks: no task 'STS21'; the nearest one is STS12"
    assert str(no_such("--tasks", "task", "zzz", ("STS12", "MR"))) == "--tasks: no task 'zzz'; there are STS12, MR"
    assert reason(ValueError("two\n  lines")) == "two lines"
    assert reason(ValueError()) == "ValueError"
    assert len(reason(ValueError("x" * 999))) == 200
    assert option("base_model", "a/b") == "base_model=a/b"
    token = in_command.set(True)
    assert option("base_model", "a/b") == "--base-model a/b"
    in_command.reset(token)
    for text, number in (("a\ud83d", "D83D"), ("\ude00é\ud83d", "DE00"), ("😀\udcff", "DCFF")):
        assert broken(text) == f"holds a broken character (U+{number} alone); remove or replace it"
    require("train", "json", "email.message")
    with pytest.raises(UserError, match=r'^not installed: nowhere; run: pip install "simcse_jax\[train\]"$'):
        require("train", "json", "nowhere")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("only_data", "real_package"):
        (tmp_path / name).mkdir()
    (tmp_path / "real_package" / "__init__.py").touch()
    assert installed("real_package") and not installed("only_data") and not installed("nowhere")
    assert not installed("nowhere.core")
