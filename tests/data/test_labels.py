import numpy as np
from support.data import raises

from simcse_jax.data.labels import Classes, NamedLabel, parse_label


def test_names_numbers_and_marks_for_no_label_are_read_and_anything_else_refused():
    for label, values in (
        (0, ["entailment", "0"]),
        (1, ["Neutral", "1", np.int64(1), 1.0, "1.0"]),
        (2, [" CONTRADICTION ", 2]),
        (None, ["", "  ", "-", "-1", -1, np.int64(-1), None, float("nan"), "NA"]),
    ):
        assert [parse_label(value, "here") for value in values] == [label] * len(values)
    for value in ("entail", "3", 3, -2, 1.5, "1.5", True, [0], object()):
        raises("which is not a label", parse_label, value, "here")


def test_classes_are_numbered_as_they_appear_by_their_names():
    classes = Classes()
    values = ["sports", " sports ", 1, "1", 1.0, "1.0", True, NamedLabel(0, "sports"), np.int64(1), "Sports", -1]
    values += [2**53 - 1, 2**53 - 2]
    assert [classes.read(value) for value in values] == [0, 0, 1, 1, 1, 1, 1, 0, 1, 2, 3, 4, 5]
    assert [classes.read(value) for value in (None, "", " ", float("nan"))] == [None] * 4 and len(classes) == 6
