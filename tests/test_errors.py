import pytest

from simcse_jax.errors import UserError, broken, in_command, installed, near, nearest, no_such, option, reason, require


def test_the_nearest_name_is_found_at_any_distance():
    assert nearest("pooller", ["pooler", "dropout"]) == "pooler"
    assert nearest("zzz", ["pooler"]) == "pooler"


def test_an_unknown_name():
    error = no_such("--tasks", "task", "STS21", ("STS12", "MR"))
    assert isinstance(error, UserError)
    assert str(error) == "--tasks: no task 'STS21'; the nearest one is STS12"


def test_a_reason_is_one_short_line():
    assert reason(ValueError("two\n  lines")) == "two lines"
    assert reason(ValueError()) == "ValueError"
    assert len(reason(ValueError("x" * 999))) == 200


@pytest.mark.parametrize("text, number", [("a\ud83d", "D83D"), ("\ude00é\ud83d", "DE00"), ("😀\udcff", "DCFF")])
def test_the_first_broken_is_named_by_its_number(text, number):
    assert broken(text) == f"holds a broken character (U+{number} alone); remove or replace it"


def test_near_names_are_at_most_three_and_at_least_one():
    assert near("geometri", ["geometry", "demo"]) == ["geometry"]
    assert near("aab", ["aaa", "abb", "aac", "aad", "z"]) == ["abb", "aad", "aac"]
    assert near("zzz", ["pooler"]) == ["pooler"]


def test_a_missing_package_names_the_command_that_installs_it():
    require("train", "json", "email.message")
    with pytest.raises(UserError, match=r'^not installed: nowhere; run: pip install "simcse_jax\[train\]"$'):
        require("train", "json", "nowhere")


def test_a_folder_of_data_is_no_package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("only_data", "real_package"):
        (tmp_path / name).mkdir()
    (tmp_path / "real_package" / "__init__.py").touch()
    assert installed("real_package") and not installed("only_data") and not installed("nowhere")
    assert not installed("nowhere.core")


def test_an_argument_is_written_as_its_reader_gives_it():
    assert option("base_model", "a/b") == "base_model=a/b"
    token = in_command.set(True)
    assert option("base_model", "a/b") == "--base-model a/b"
    in_command.reset(token)
