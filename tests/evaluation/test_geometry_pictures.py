import pytest
from matplotlib.axes import Axes
from support.pictures import measured, texts

from simcse_jax.evaluation import geometry
from simcse_jax.evaluation import geometry_pictures as pictures
from simcse_jax.evaluation.geometry_pictures import PlanePoint


@pytest.mark.slow
def test_pictures_name_each_model_with_its_score_or_panel_and_runs_with_their_steps():
    found = {"the $first$ model": measured(0), "second": measured(1), "x" * 90: measured(3)}
    assert "only one" in "".join(texts(pictures.models({"only one": measured(0)}, "STS-B test")["svg"]))
    drawn = pictures.models(found, "STS-B test")
    there = texts(drawn["svg"])
    scores = [one.spearman for one in found.values()]
    for name, score in zip(["the $first$ model", "second", "…" + "x" * 43], scores, strict=True):
        assert f"{name} ({score:.1f})" in there
    assert sum("lower is better" in text for text in there) == 2 and any("STS-B test" in text for text in there)
    assert drawn["png"].startswith(b"\x89PNG")
    assert pictures.models(found, "STS-B test") == drawn  # the same bytes
    found = {"a": measured(0), "b": measured(1)}
    there = texts(pictures.models(found, "STS-B all", {"a": 51.23, "b": 70.0}, "average STS of 6 of 7 tasks")["svg"])
    assert {"a (51.2)", "b (70.0)", "average STS of 6 of 7 tasks, in brackets too (higher is better)"} <= set(there)
    few = measured(0)
    values = few.spectrum.singular_values.copy()
    values[-3:] = (3e-4, 1e-9, 0)
    few = few._replace(spectrum=few.spectrum._replace(singular_values=values))
    panels = {"Unsupervised": {"a $b$": few, "x" * 90: measured(1)}, "Supervised": {"c": measured(2)}}
    for draw, names in (
        (pictures.singular_values, {"a $b$", "…" + "x" * 43, "c"}),
        (pictures.cosines, {"a $b$", "c", *geometry.GROUPS}),
    ):
        there = texts(draw(panels, "STS-B test")["svg"])
        assert [text for text in there if text in panels] == ["Unsupervised", "Supervised"]
        assert names <= set(there) and any("STS-B test" in text for text in there)
        assert "0.0001" not in there
    assert "step 7" in texts(pictures.runs({"a": [at(7, 0.2, -1)]}, "STS-B test")["svg"])
    found = {"a": [at(0, 0.2, -1), at(10, 0.3, -2), at(20, 0.1, -3)], "b": [at(5, 0.5, -2), at(6, 0.6, -1)]}
    there = texts(pictures.runs(found, "STS-B dev")["svg"])
    assert {"a", "b", "step 0", "20", "step 5", "6"} <= set(there)
    assert any("STS-B dev, by training step" in text for text in there)
    there = texts(pictures.runs({"a": [at(step, 0.2, -1 - step / 100) for step in range(60)]}, "STS-B")["svg"])
    assert {"step 0", "59"} <= set(there) and sum(text.isdigit() for text in there) < 30  # those that would overlap
    one = {0: {"alignment": 0.2, "uniformity": -1.0}, 10: {"alignment": 0.4, "uniformity": -2.0}}
    other = {10: {"alignment": 0.6, "uniformity": -3.0}, 20: {"alignment": 0.0, "uniformity": 0.0}}
    assert pictures.mean_of([one, other]) == [PlanePoint(10, pytest.approx(0.5), -2.5)]
    assert pictures.mean_of([one])[1].to_json() == {"step": 10, "alignment": 0.4, "uniformity": -2.0}


def at(step: int, *place: float) -> PlanePoint:
    return PlanePoint(step, *place)


@pytest.mark.slow
def test_arrows_point_along_the_training(monkeypatch):
    pointed, annotate = [], Axes.annotate

    def recorded(self, text, *places, **more):
        if not text:
            pointed.append(places)
        return annotate(self, text, *places, **more)

    monkeypatch.setattr(Axes, "annotate", recorded)
    pictures.runs({"a": [at(0, 0.1, -1), at(10, 0.1, -3)], "b": [at(0, 0.5, -1), at(10, 0.9, -1)]}, "STS-B")
    right = [head[0] < tail[0] for head, tail in pointed if head[1] == pytest.approx(tail[1])]
    up = [head[1] > tail[1] for head, tail in pointed if head[0] == pytest.approx(tail[0])]
    assert len(right) == 1 and all(right) and len(up) == 1 and all(up)
    pointed.clear()
    pictures.runs({"a": [at(step, 0.1, -1) for step in range(3)]}, "STS-B")
    assert not pointed  # it stays where it is
