import numpy as np
import pytest
from matplotlib.axes import Axes
from support.pictures import texts

from simcse_jax.evaluation import spectrum_pictures as pictures
from simcse_jax.evaluation.analysis.spectrum import measure


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
