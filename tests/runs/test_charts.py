import re
import xml.etree.ElementTree as ET
from math import inf, nan

import pytest

from simcse_jax.runs import charts


def parse(figure: str) -> ET.Element:
    return ET.fromstring(figure)


def test_a_curve_has_its_points_a_ring_and_says_what_it_leaves_out():
    points = [(step, 2.0 - step / 10) for step in range(10)]
    drawn = charts.curve([*points[:5], (5, nan), (6, inf), *points[7:]], "loss <&>", best=8)
    line = parse(drawn).find(".//polyline").get("points").split()
    assert len(line) == 8 and "left out: 2)" in drawn and "loss &lt;&amp;&gt;" in drawn
    left, right = (float(place.split(",")[0]) for place in (line[0], line[-1]))
    assert (left, right) == (charts.LEFT, charts.WIDE - charts.RIGHT)
    heights = [float(place.split(",")[1]) for place in line]
    assert heights == sorted(heights)  # the values fall, so they go down the page
    (ring,) = (circle for circle in parse(drawn).iter("circle") if circle.get("class") == "found")
    assert ring.get("cx") == line[-2].split(",")[0]
    assert "left out: 1)" in charts.curve([(3, nan)], "loss")
    many = charts.curve([(step, float(step % 7)) for step in range(100_000)], "loss")
    assert len(many) < 20_000 and many.count("circle") == 1
    same = charts.curve([(4, 1.0)], "loss")
    assert "NaN" not in same and f'cx="{(charts.LEFT + charts.WIDE - charts.RIGHT) / 2:.1f}"' in same


def test_changes_and_their_interval_are_drawn_where_they_are():
    drawn = parse(charts.changes([("fold 1", 60.0, 70.0), ("mean", 80.0, 75.0)], "nDCG"))
    up, down = (line for line in drawn.iter("line") if "link" in line.get("class"))
    assert up.get("class").endswith("good") and float(up.get("x1")) < float(up.get("x2"))
    assert down.get("class").endswith("bad") and float(down.get("x1")) > float(down.get("x2"))
    texts = [text.text for text in drawn.iter("text")]
    assert {"60.0 → 70.0", "80.0 → 75.0", "mean"} <= set(texts)
    for low, kind in {1.0: "good", -1.0: "before", -3.0: "bad"}.items():
        strip = parse(charts.interval(low, low + 1, low + 2, "change"))
        zero, bar = strip.iter("line")
        assert bar.get("class") == f"bar {kind}"
        inside = float(bar.get("x1")) <= float(zero.get("x1")) <= float(bar.get("x2"))
        assert inside == (kind == "before")


@pytest.mark.parametrize("low, high", [(0, 1), (-3.2, 7.7), (69.98, 70.02), (5, 5), (0, 0), (1e-9, 3e-9), (0, 123_456)])
def test_ticks_are_round_and_within(low, high):
    found = charts.ticks(low, high)
    assert len(found) <= 6 and all(low - 1e-9 <= value <= high + 1e-9 for value in found)
    assert all(re.fullmatch(r"-?[\d.]{1,8}(e[-+]\d+)?", f"{value:g}") for value in found)
    assert charts.ticks(0, 3, whole=True) == [0, 1, 2, 3]
