from support.pictures import measured, texts

from simcse_jax.evaluation import geometry
from simcse_jax.evaluation import geometry_pictures as pictures


def test_pictures_name_every_model_and_the_better_direction():
    found = {"the $first$ model": measured(0), "second": measured(1), "third": measured(2), "x" * 90: measured(3)}
    panels = {"": found}
    shown = ["the $first$ model", "second", "third", "…" + "x" * 43]
    for draw, labels in (
        (pictures.models, [f"{n} ({g.spearman:.1f})" for n, g in zip(shown, found.values(), strict=True)]),
        (pictures.singular_values, shown),
        (pictures.cosines, [*shown[:3], *geometry.GROUPS]),
    ):
        given = found if draw is pictures.models else panels
        drawn = draw(given, "STS-B test")
        assert drawn["png"].startswith(b"\x89PNG")
        there = texts(drawn["svg"])
        assert [label for label in labels if label not in there] == []
        assert any("STS-B test" in text for text in there)
        if draw is pictures.models:
            assert sum("lower is better" in text for text in there) == 2
            assert draw(given, "STS-B test") == drawn  # the same bytes


def test_a_score_of_other_data_colours_the_points():
    found = {"a": measured(0), "b": measured(1)}
    there = texts(pictures.models(found, "STS-B all", {"a": 51.23, "b": 70.0}, "average STS of 6 of 7 tasks")["svg"])
    assert {"a (51.2)", "b (70.0)", "average STS of 6 of 7 tasks, in brackets too (higher is better)"} <= set(there)


def test_each_panel_has_its_title_and_its_models():
    panels = {"Unsupervised": {"a": measured(0), "b": measured(1)}, "Supervised": {"c": measured(2)}}
    for draw in (pictures.singular_values, pictures.cosines):
        there = texts(draw(panels, "STS-B test")["svg"])
        assert [text for text in there if text in ("Unsupervised", "Supervised")] == ["Unsupervised", "Supervised"]
        assert {"a", "b", "c"} <= set(there)


def test_a_single_model_is_drawn_among_its_gold_groups():
    found = measured(0)
    there = texts(pictures.models({"a": found}, "STS-B test")["svg"])
    assert f"{found.alignment:.2f}  alignment: pairs rated above 4" in there
    mean = found.groups["0–1"].mean
    assert mean is not None and f"{2 - 2 * mean:.2f}  pairs rated 0–1" in there
    assert {"spread evenly", "all in one place", "mean ‖f(x) − f(y)‖² of the pairs"} <= set(there)
