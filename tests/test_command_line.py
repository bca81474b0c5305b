import pytest

from simcse_jax.command_line import parse_model


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("runs/a", ("runs/a", 0, None)),
        ("package:name@3", ("package:name", 3, None)),
        ("org/model@avg_first_last", ("org/model", 0, "avg_first_last")),
        ("model@12@cls", ("model", 12, "cls")),
        ("model@cls@2", ("model", 2, "cls")),
    ],
)
def test_a_model_may_name_its_layers_and_its_pooler(spec, expected):
    assert parse_model(spec) == expected


def test_a_folder_with_an_at_in_its_name_is_taken_as_it_is(tmp_path):
    (tmp_path / "runs@3").mkdir()
    assert parse_model(str(tmp_path / "runs@3")) == (str(tmp_path / "runs@3"), 0, None)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("owner/model@main", ("owner/model@main", 0, None)),
        ("owner/model@main@3@avg", ("owner/model@main", 3, "avg")),
        ("model@3@4", ("model@3", 4, None)),
        ("model@avg@cls", ("model@avg", 0, "cls")),
    ],
)
def test_what_stands_before_the_options_may_be_a_revision(spec, expected):
    assert parse_model(spec) == expected
