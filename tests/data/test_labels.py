import numpy as np
import pytest
from support.data import raises

from simcse_jax.data.labels import parse_label


@pytest.mark.parametrize(
    ("label", "values"),
    [
        (0, ["entailment", "0"]),
        (1, ["Neutral", "1", np.int64(1)]),
        (2, [" CONTRADICTION ", 2]),
        (None, ["", "  ", "-", "-1", -1, np.int64(-1), None]),
    ],
)
def test_names_numbers_and_marks_for_no_label(label, values):
    assert [parse_label(value, "here") for value in values] == [label] * len(values)


@pytest.mark.parametrize("value", ["entail", "3", 3, -2, 1.0, "1.0", True, [0], object()])
def test_anything_else_is_refused(value):
    where = "a.csv: line 7: the field 'label'"
    raises(f"{where} holds {value!r}, which is not a label", parse_label, value, where)
