import re

from support.sweeps import RESULTS, VARIANTS, sweep

from simcse_jax.training.sweeps.picture import arrange, plot, what_rows_are
from simcse_jax.training.sweeps.summary import summarize
from simcse_jax.training.sweeps.variants import Variant


def texts(pictures):
    return re.findall(r"<text[^>]*>(.*?)</text>", pictures["svg"].decode())


def test_the_plot_shows_both_and_is_the_same_every_time():
    rows = summarize(sweep(), VARIANTS, RESULTS)
    first, second = plot(rows, sweep()), plot(rows, sweep())
    assert first == second
    assert first["png"].startswith(b"\x89PNG")
    there = texts(first)
    expected = {"base", "better", "a|b", "STS-B dev, ours", "STS-B dev, the paper's", "A title (SimCSE, Table 3)"}
    expected |= {"mean ± std of our seeds", "one seed", "our baseline", "paper", "our Δ", "+2.00"}
    assert expected <= set(there)
    assert "dc:date" not in first["svg"].decode()
    assert b"Software" not in first["png"]


def test_the_paper_s_values_do_not_stretch_our_axis():
    """Ours differ by less than one, the paper's by forty: our panel has ticks that tell ours apart."""
    variants = (Variant("base", {}, {"stsb_dev": 82.5}), Variant("better", {}, {"stsb_dev": 43.6}))
    results = {"base": {42: {"stsb_dev": 81.1}}, "better": {42: {"stsb_dev": 80.8}}}
    there = texts(plot(summarize(sweep(), variants, results), sweep()))
    ticks = [float(text) for text in there if re.fullmatch(r"[\d.]+", text)]
    ours, theirs = [tick for tick in ticks if 80.5 < tick < 81.5], [tick for tick in ticks if tick < 80]
    assert len(ours) >= 2 and len(theirs) >= 2


def test_the_plot_says_what_its_rows_are():
    fields = [{"model.dropout": 0.0}, {"model.dropout": 0.1, "seed": 1}, {"seed": 1, "views.positive": "shared"}]
    variants = [Variant(f"v{number}", each) for number, each in enumerate(fields)]

    def about(variants):
        return what_rows_are(summarize(sweep(baseline="v0"), variants, {}))

    assert about(variants) == "Rows differ in model.dropout, seed, views.positive."
    assert about(variants[:1]) == ""
    assert about([Variant("v0", {"a": 1, "b": [1]}), Variant("v1", {"a": 1, "b": [2]})]) == "Rows differ in b."
    many = [Variant(f"v{n}", {f"f{m}": n for m in range(6)}) for n in range(2)]
    assert about(many) == "Rows differ in f0, f1, f2, f3 and 2 more."


def test_the_plot_takes_one_seed_and_none_and_many_rows():
    empty = texts(plot(summarize(sweep(), VARIANTS[2:], {}), sweep()))
    assert "paper" not in empty and "Δ" not in empty
    variants = [Variant(f"$\\tau$ {number}_x^2", {}, baseline=f"$\\tau$ {number % 2}_x^2") for number in range(20)]
    results = {variant.name: {42: {"stsb_dev": 70.0}} for variant in variants}
    there = texts(plot(summarize(sweep(), variants, results), sweep()))
    assert "$\\tau$ 19_x^2" in there  # not read as a formula
    assert "our baseline" not in there  # there are two
    assert "paper" not in there


def test_many_metrics_stand_in_lines_of_panels():
    """Ours above, the paper's below; quoted rows stand among the paper's alone."""
    metrics = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICKRelatedness", "sts_avg", "alignment")
    variants = (Variant("base", {}, {"STS12": 39.7}), Variant("GloVe", {}, {"sts_avg": 61.3}, quoted=True))
    results = {"base": {42: {metric: 50.0 for metric in metrics if metric != "STS15"}}}
    rows, many = summarize(sweep(metrics), variants, results), sweep(metrics)
    lines = [[(kind, metric) for kind, metric, _ in line] for line in arrange(rows, many)]
    ours = [("ours", metric) for metric in metrics]
    paper = [("paper" if metric in ("STS12", "sts_avg") else "", metric) for metric in metrics[:8]]
    assert lines == [ours[:8], paper, ours[8:]]
    shown = [[row.variant for row in line[0][2]] for line in arrange(rows, many)]
    assert shown == [["base"], ["base", "GloVe"], ["base"]]
    there = texts(plot(rows, many))
    assert {"GloVe (quoted)", "STS avg., ours", "STS avg., the paper's", "alignment, ours", "no value"} <= set(there)
    assert there.count("no value") == 1 and "STS13, the paper's" not in there
