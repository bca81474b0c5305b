import numpy as np
import pytest
from matplotlib.axes import Axes
from support.pictures import measured, texts

from simcse_jax.evaluation import geometry
from simcse_jax.evaluation import geometry_pictures as pictures
from simcse_jax.evaluation.analysis.spectrum import measure
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
    values = {panel: {name: one.spectrum.singular_values for name, one in of.items()} for panel, of in panels.items()}
    for drawn, names in (
        (pictures.singular_values(values, "STS-B test"), {"a $b$", "…" + "x" * 43, "c"}),
        (pictures.cosines(panels, "STS-B test"), {"a $b$", "c", *geometry.GROUPS}),
    ):
        there = texts(drawn["svg"])
        assert [text for text in there if text in panels] == ["Unsupervised", "Supervised"]
        assert names <= set(there) and any("STS-B test" in text for text in there)
        assert "0.0001" not in there
    assert "step 7" in texts(pictures.runs({"a": [at(7, 0.2, -1)]}, "STS-B test")["svg"])
    found = {"a": [at(0, 0.2, -1), at(10, 0.3, -2), at(20, 0.1, -3)], "b": [at(5, 0.5, -2), at(6, 0.6, -1)]}
    there = texts(pictures.runs(found, "STS-B dev")["svg"])
    assert {"a", "b", "step 0", "step 20", "step 5", "step 6"} <= set(there)
    assert any("STS-B dev, by training step" in text for text in there)
    one = {0: {"alignment": 0.2, "uniformity": -1.0}, 10: {"alignment": 0.4, "uniformity": -2.0}}
    other = {10: {"alignment": 0.6, "uniformity": -3.0}, 20: {"alignment": 0.0, "uniformity": 0.0}}
    assert pictures.mean_of([one, other]) == [PlanePoint(10, pytest.approx(0.5), -2.5)]
    assert pictures.mean_of([one])[1].to_json() == {"step": 10, "alignment": 0.4, "uniformity": -2.0}


def at(step: int, *place: float) -> PlanePoint:
    return PlanePoint(step, *place)


def run(shifts: dict[int, float], temperature: float | None = 0.05):
    """Spectra of 30 random embeddings by step, in a cone that the shift makes narrow."""
    rows = np.random.default_rng(0).normal(size=(2, 30, 8))
    rows = {step: rows + shift for step, shift in shifts.items()}
    return {step: measure(sides[0], tuple(sides), temperature, tuple(sides)) for step, sides in rows.items()}


STEPS = {0: 3.0, 10: 2.0, 20: 1.0, 1000: 0.0}


@pytest.mark.slow
def test_spectra_have_a_panel_a_run_and_both_sides_of_equation_7_are_drawn(monkeypatch):
    drawn = pictures.spectrum({"the $first$ run": run(STEPS), "x" * 90: run({0: 3.0})}, "STS-B dev")
    there = texts(drawn["svg"])
    assert [text for text in there if text.startswith("step ")] == ["step 0", "step 10", "step 20", "step 1,000"]
    assert {"the $first$ run", "…" + "x" * 29} <= set(there)
    assert any("STS-B dev, by training step" in text for text in there)
    assert drawn["png"].startswith(b"\x89PNG")
    for count, last in ((1, [0]), (16, [0, 1, 2, 4, 8, 15])):
        there = texts(pictures.spectrum({"a": run(dict.fromkeys(range(count), 1.0))}, "STS-B")["svg"])
        assert [text for text in there if text.startswith("step ")] == [f"step {step}" for step in last]
    drawn, plot = [], Axes.plot
    monkeypatch.setattr(
        Axes, "plot", lambda self, x, y, **style: [drawn.append((x, y, style)), *plot(self, x, y, **style)][1:]
    )
    found = {"a": run(STEPS), "b": run({0: 3.0, 10: 1.0})}
    there = texts(pictures.terms(found, "STS-B dev")["svg"])
    kinds = [style["linestyle"] for *_, style in drawn]
    # Of both runs the terms and the spectrum; those of dropout pairs and the bound; the floor.
    assert [kinds.count(style) for style in ("-", "--", ":")] == [2 * 5, 2 * 3, 2]
    dashed = [(x, y) for x, y, style in drawn if style["linestyle"] == "--"][::2]
    for line, name in zip(
        dashed, ("dropout_alignment_term", "dropout_uniformity_term", "uniformity_bound"), strict=True
    ):
        assert line == (tuple(STEPS), tuple(one.numbers[name] for one in found["a"].values()))
    assert {"a", "b", "(all of them add up to 30)", "(at most 8)"} <= set(there)
    assert [text for text in there if text in ("a", "b")] == ["a", "b"]  # once each
    there = texts(pictures.terms({"a": run(STEPS, None)}, "STS-B dev")["svg"])
    assert "The top eigenvalue of W Wᵀ" in there and not any("quation" in text for text in there)
