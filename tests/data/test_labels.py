import numpy as np
import pytest

from simcse_jax.data.labels import parse_label
from simcse_jax.errors import UserError


@pytest.mark.parametrize(
    ("value", "label"),
    [
        ("entailment", 0),
        ("Neutral", 1),
        (" CONTRADICTION ", 2),
        ("0", 0),
        ("1", 1),
        (2, 2),
        (np.int64(1), 1),
        ("", None),
        ("  ", None),
        ("-", None),
        ("-1", None),
        (-1, None),
        (np.int64(-1), None),
        (None, None),
    ],
)
def test_names_numbers_and_marks_for_no_label(value, label):
    assert parse_label(value, "here") == label


@pytest.mark.parametrize("value", ["entail", "3", 3, -2, 1.0, "1.0", True, [0], object()])
def test_anything_else_is_refused(value):
    with pytest.raises(UserError) as error:
        parse_label(value, "a.csv: line 7: the field 'label'")
    assert str(error.value).startswith(f"a.csv: line 7: the field 'label' holds {value!r}")
    assert "entailment, neutral or contradiction, or 0, 1 or 2" in str(error.value)
