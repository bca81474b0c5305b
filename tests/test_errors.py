from simcse_jax.errors import UserError, nearest, no_such, reason


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
