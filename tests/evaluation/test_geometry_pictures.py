import xml.etree.ElementTree as ElementTree

import numpy as np

from simcse_jax.evaluation import geometry
from simcse_jax.evaluation import geometry_pictures as pictures
from simcse_jax.evaluation.sts import Pairs


def measured(seed: int) -> geometry.Geometry:
    rows = np.random.default_rng(seed).normal(size=(40, 5)) + 0.5
    gold = np.linspace(0, 5, 20)
    return geometry.measure(
        lambda sentences: np.array([rows[int(sentence)] for sentence in sentences]),
        Pairs([str(n) for n in range(20)], [str(n) for n in range(20, 40)], gold, {}),
    )


def texts(svg: bytes) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_pictures_name_every_model_and_the_better_direction():
    found = {"the $first$ model": measured(0), "second": measured(1), "third": measured(2), "x" * 90: measured(3)}
    shown = ["the $first$ model", "second", "third", "…" + "x" * 43]
    for draw, labels in (
        (pictures.models, [f"{n} ({g.spearman:.1f})" for n, g in zip(shown, found.values(), strict=True)]),
        (pictures.singular_values, shown),
        (pictures.cosines, [*shown[:3], *geometry.GROUPS]),
    ):
        drawn = draw(found, "STS-B test")
        assert drawn["png"].startswith(b"\x89PNG")
        there = texts(drawn["svg"])
        assert [label for label in labels if label not in there] == []
        assert any("STS-B test" in text for text in there)
        if draw is pictures.models:
            assert sum("lower is better" in text for text in there) == 2
            assert draw(found, "STS-B test") == drawn  # the same bytes


def test_a_single_model_is_drawn_among_its_gold_groups():
    found = measured(0)
    for drawn in (pictures.models({"a": found}, "STS-B test"), pictures.runs({"a": [(7, found)]}, "STS-B test")):
        there = texts(drawn["svg"])
        assert f"{found.alignment:.2f}  alignment: pairs rated above 4" in there
        mean = found.groups["0–1"].mean
        assert mean is not None and f"{2 - 2 * mean:.2f}  pairs rated 0–1" in there
        assert {"spread evenly", "all in one place", "mean ‖f(x) − f(y)‖² of the pairs"} <= set(there)
    assert f"a, step 7 on STS-B test: Spearman × 100 {found.spearman:.1f}" in there


def test_the_picture_of_runs_labels_the_steps():
    found = {"a": [(0, measured(0)), (10, measured(1)), (20, measured(2))], "b": [(5, measured(3)), (6, measured(4))]}
    there = texts(pictures.runs(found, "STS-B dev")["svg"])
    assert {"a", "b", "step 0", "20", "step 5", "6"} <= set(there)
    assert any("STS-B dev, by training step" in text for text in there)


def test_step_labels_that_would_overlap_are_left_out():
    same = measured(0)
    there = texts(pictures.runs({"a": [(step, same) for step in range(60)]}, "STS-B")["svg"])
    assert "step 0" in there and "59" in there
    assert sum(text.isdigit() for text in there) < 30
