import json
import re

import numpy as np
import pytest

from simcse_jax.training.comparing import describe_models

GROUPS = np.arange(40)


@pytest.fixture
def write(tmp_path):
    """Writes a finished run: its models' scores of the rows of two folds, before and after."""

    def of(name, before, after, is_better, folds=2, groups=GROUPS):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        paired = [[groups.tolist(), (GROUPS * 0 + before).tolist(), (GROUPS % 3 + after).tolist(), None]] * folds
        numbers = {"before": before, "after": after + 39 / 40, "low": 0.5 if is_better else -1.0, "high": 9.0}
        against = numbers | {"measure": "Accuracy × 100"} | ({"folds": [], "rows": 80} if folds else {})
        (folder / "result.json").write_text(json.dumps({"against_start": against}))
        (folder / "folds.json").write_text(json.dumps({"measure": "", "folds": paired}))
        return str(folder)

    return of


def test_the_kept_models_are_compared_row_by_row_where_both_were_judged_by_the_same_rows(write):
    one = write("one", 50, 60, True)
    for after, is_better, said in (
        (58, True, r"one is better than two: \+2.00, 95% interval \+2.00 to \+2.00"),
        (70, False, r"one is better than two: \+10.98, 95% interval \+10\..* to \+11\..*"),  # two's start is kept
        (60, True, r"one and two may be equally good: \+0.00, 95% interval \+0.00 to \+0.00"),
    ):
        text, folder = describe_models({"one": one, "two": write("two", 50, after, is_better)}, seed=0)
        assert folder == one and text.endswith(f"use {one}") and "one | " in text and "50.00 |  60.98" in text
        assert re.search(said, text), text
    text, folder = describe_models({"one": one, "two": write("two", 50, 65, True)}, seed=0)
    assert "two is better than one: +5.00" in text and folder.endswith("two")


def test_scores_of_other_rows_have_no_interval_of_their_difference(write):
    one, grouped = write("one", 50, 60, True), write("grouped", 50, 58, True, groups=GROUPS // 2)
    text, folder = describe_models({"one": one, "held": write("held", 50, 58, True, folds=0), "grouped": grouped}, 0)
    assert "one scores 2.00 more than held" in text and "one scores 2.00 more than grouped" in text and folder == one
