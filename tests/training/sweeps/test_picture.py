import io
import re

from PIL import Image
from support.sweeps import RESULTS, VARIANTS, sweep

from simcse_jax.training.sweeps.picture import describe_rows, plot
from simcse_jax.training.sweeps.summary import summarize
from simcse_jax.training.sweeps.variants import Variant


def texts(pictures):
    return re.findall(r"<text[^>]*>(.*?)</text>", pictures["svg"].decode())


def test_the_plot_shows_both_on_one_axis_and_what_its_rows_are_and_is_the_same_every_time():
    rows = summarize(sweep(), VARIANTS, RESULTS)
    first, second = plot(rows, sweep()), plot(rows, sweep())
    assert first == second and first["png"].startswith(b"\x89PNG") and b"Software" not in first["png"]
    assert "dc:date" not in first["svg"].decode()
    rows_named = {"base (n = 3)", "better (n = 3)", "a|b (n = 0)"}
    expected = {"STS-B dev", "Δ STS-B dev", "one seed", "baseline", "paper", "mean difference, 95% interval", "+2.00"}
    assert rows_named | expected <= set(texts(first)) and "our" not in " ".join(texts(first))
    variants = (Variant("base", {}, {"stsb_dev": 82.5}), Variant("better", {}, {"stsb_dev": 43.6}))
    results = {"base": {42: {"stsb_dev": 81.1}}, "better": {42: {"stsb_dev": 80.8}}}
    drawn = plot(summarize(sweep(), variants, results), sweep())
    assert not re.search(r'<path d="M[^"]*" clip-path[^>]*stroke-width: 1.2', drawn["svg"].decode())  # one seed: no bar
    there = texts(drawn)
    ticks = [float(text) for text in there if re.fullmatch(r"[\d.]+", text)]
    assert there.count("STS-B dev") == 1 and min(ticks) <= 60 and max(ticks) >= 80
    fields = [{"model.dropout": 0.0}, {"model.dropout": 0.1, "seed": 1}, {"seed": 1, "views.positive": "shared"}]
    variants = [Variant(f"v{number}", each) for number, each in enumerate(fields)]

    def about(variants):
        return describe_rows(summarize(sweep(baseline="v0"), variants, {}))

    assert about(variants) == "Rows differ in model.dropout, seed, views.positive." and about(variants[:1]) == ""
    assert about([Variant("v0", {"a": 1, "b": [1]}), Variant("v1", {"a": 1, "b": [2]})]) == "Rows differ in b."
    many = [Variant(f"v{n}", {f"f{m}": n for m in range(6)}) for n in range(2)]
    assert about(many) == "Rows differ in f0, f1, f2, f3 and 2 more."


def test_the_plot_takes_any_number_of_seeds_rows_and_metrics_and_is_no_wider_than_a_page():
    empty = texts(plot(summarize(sweep(), VARIANTS[2:], {}), sweep()))
    assert "paper" not in empty and "Δ" not in empty
    variants = [Variant(f"$\\tau$ {number}_x^2", {}, baseline=f"$\\tau$ {number % 2}_x^2") for number in range(20)]
    results = {variant.name: {42: {"stsb_dev": 70.0}} for variant in variants}
    there = texts(plot(summarize(sweep(), variants, results), sweep()))
    assert "$\\tau$ 19_x^2 (n = 1)" in there  # not read as a formula
    assert "Δ STS-B dev" in there and "paper" not in there
    metrics = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSBenchmark", "SICKRelatedness", "sts_avg", "alignment")
    long, glove = "base " * 9, Variant("GloVe", {}, {"sts_avg": 61.3}, quoted=True)
    variants = (Variant(long, {}, {"STS12": 39.7, "STS15": 41.2}), glove)
    results = {long: {42: {metric: 50.0 for metric in metrics if metric != "STS15"}}}
    for count in (1, 4, 5, 9):
        rows = summarize(sweep(metrics[:count]), variants, results)
        drawn = plot(rows, sweep(metrics[:count]))
        assert Image.open(io.BytesIO(drawn["png"])).width <= 1600
        there = texts(drawn)
        assert {"GloVe (quoted)", "STS12", "one seed", "paper"} <= set(there)
        assert "STS15" not in there and "no value" not in there  # a metric that we have no value of has no panel
    assert {"STS avg.", "alignment"} <= set(there)
