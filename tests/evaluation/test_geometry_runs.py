import pytest
from support.pictures import measured, texts

from simcse_jax.evaluation import geometry_runs
from simcse_jax.evaluation.geometry_runs import Place


def at(step: int, *place: float) -> Place:
    return Place(step, *place)


def test_the_picture_labels_the_steps_of_each_run():
    found = {"a": [at(0, 0.2, -1), at(10, 0.3, -2), at(20, 0.1, -3)], "b": [at(5, 0.5, -2), at(6, 0.6, -1)]}
    drawn = geometry_runs.runs(found, "STS-B dev")
    there = texts(drawn["svg"])
    assert {"a", "b", "step 0", "20", "step 5", "6"} <= set(there)
    assert any("STS-B dev, by training step" in text for text in there)
    assert geometry_runs.runs(found, "STS-B dev") == drawn  # the same bytes


def test_arrows_point_along_the_training(monkeypatch):
    pointed = []
    monkeypatch.setattr(
        "matplotlib.axes.Axes.annotate",
        lambda self, text, head, tail=None, **more: pointed.append((head, tail)) if not text else _Nothing(),
    )
    geometry_runs.runs({"a": [at(0, 0.1, -1), at(10, 0.1, -3)], "b": [at(0, 0.5, -1), at(10, 0.9, -1)]}, "STS-B")
    right = [head[0] < tail[0] for head, tail in pointed if head[1] == pytest.approx(tail[1])]
    up = [head[1] > tail[1] for head, tail in pointed if head[0] == pytest.approx(tail[0])]
    assert len(right) >= 2 and all(right) and len(up) >= 2 and all(up)
    pointed.clear()
    geometry_runs.runs({"a": [at(step, 0.1, -1) for step in range(3)]}, "STS-B")
    assert not pointed  # it stays where it is


class _Nothing:
    """A label that is never in the way."""

    def get_window_extent(self):
        from matplotlib.transforms import Bbox

        return Bbox([[0, 0], [1, 1]])

    def remove(self):
        pass


def test_step_labels_that_would_overlap_are_left_out():
    there = texts(geometry_runs.runs({"a": [at(step, 0.2, -1) for step in range(60)]}, "STS-B")["svg"])
    assert "step 0" in there and "59" in there
    assert sum(text.isdigit() for text in there) < 30


def test_a_single_checkpoint_is_drawn_as_a_model_and_a_recorded_one_as_a_point():
    found = measured(0)
    place = Place(7, found.alignment, found.uniformity, found)
    there = texts(geometry_runs.runs({"a": [place]}, "STS-B test")["svg"])
    assert f"a, step 7 on STS-B test: Spearman × 100 {found.spearman:.1f}" in there
    assert "step 7" in texts(geometry_runs.runs({"a": [at(7, 0.2, -1)]}, "STS-B test")["svg"])


def test_the_mean_of_seeds_is_over_the_steps_that_all_have():
    one = {0: {"alignment": 0.2, "uniformity": -1.0}, 10: {"alignment": 0.4, "uniformity": -2.0}}
    other = {10: {"alignment": 0.6, "uniformity": -3.0}, 20: {"alignment": 0.0, "uniformity": 0.0}}
    assert geometry_runs.mean_of([one, other]) == [Place(10, pytest.approx(0.5), -2.5)]
    assert geometry_runs.mean_of([one])[1].to_json() == {"step": 10, "alignment": 0.4, "uniformity": -2.0}
