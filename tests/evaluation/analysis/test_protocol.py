import pytest

from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis.protocol import CHOICES, Protocol


def test_the_first_of_each_choice_is_the_default():
    assert {name: getattr(Protocol(), name) for name in CHOICES} == {
        name: next(iter(values)) for name, values in CHOICES.items()
    }


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("units", "letters", "--units letters: must be one of pieces, words"),
        ("min_count", 1, "--min-count 1: must be 2 or more"),
        ("max_types", 0, "--max-types 0: must be 1 or more"),
        ("samples", 2, "--samples 2: must be 3 or more"),
        ("seed", -1, "--seed -1: must be 0 or more"),
    ],
)
def test_a_choice_out_of_its_range_is_refused(name, value, message):
    with pytest.raises(UserError, match=message):
        Protocol(**{name: value})
