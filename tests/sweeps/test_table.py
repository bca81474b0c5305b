import csv
import io
import re
import warnings

import pytest

from simcse_jax.errors import UserError
from simcse_jax.sweeps import table
from simcse_jax.sweeps.variants import METRICS, Variant, sweep_defaults

VARIANTS = (
    Variant("base", {}, {"stsb_dev": 82.5}),
    Variant("better", {}, {"stsb_dev": 84.0, "sts_avg": 76.25}),
    Variant("a|b", {}),
)
# Differences of `better` from `base`: 1, 2, 3. Their mean is 2, their standard deviation 1, so t = 2 / (1 / √3) = 3.464
# with two degrees of freedom; there p = 1 - t / √(t² + 2) = 1 - 3.464 / √14 = 0.0742.
RESULTS = {
    "base": {42: {"stsb_dev": 70.0}, 43: {"stsb_dev": 72.0}, 44: {"stsb_dev": 74.0}},
    "better": {42: {"stsb_dev": 71.0, "sts_avg": 60.0}, 43: {"stsb_dev": 74.0}, 44: {"stsb_dev": 77.0}},
}


def sweep(metrics=("stsb_dev",), **fields):
    sweep = sweep_defaults("A title", "SimCSE, Table 3", metrics, "base")
    sweep.update(fields)
    return sweep


def cell(results, name="better", variants=VARIANTS, metric="stsb_dev", **fields):
    rows = table.summarize(sweep(**fields), variants, results)
    return next(row for row in rows if row.variant == name).cells[metric]


def test_a_worked_example():
    found = cell(RESULTS)
    assert (found.mean, found.std, found.paper, found.difference) == pytest.approx((74.0, 3.0, 84.0, 2.0))
    assert found.p == pytest.approx(1 - 12**0.5 / 14**0.5, abs=1e-9)
    assert found.values == {42: 71.0, 43: 74.0, 44: 77.0}
    base = cell(RESULTS, "base")
    assert (base.mean, base.std, base.difference, base.p) == (72.0, 2.0, None, None)
    assert cell(RESULTS, "a|b") == table.Cell({}, None, None, None, None, None, "STS-B dev")


def test_only_the_seeds_that_both_have_are_compared():
    results = {"base": {42: {"stsb_dev": 70.0}, 43: {"stsb_dev": 72.0}}, "better": {43: {"stsb_dev": 75.0}, 44: {}}}
    found = cell(results)
    assert (found.values, found.mean, found.std, found.difference, found.p) == ({43: 75.0}, 75.0, None, 3.0, None)
    none_shared = cell({"base": {42: {"stsb_dev": 1.0}}, "better": {43: {"stsb_dev": 2.0}}})
    assert (none_shared.mean, none_shared.difference, none_shared.p) == (2.0, None, None)


def test_runs_of_other_seeds_are_left_out():
    assert cell(RESULTS, seeds=("44", "42")).values == {44: 77.0, 42: 71.0}
    assert cell(RESULTS, seeds=("44", "42")).difference == pytest.approx(2.0)


@pytest.mark.parametrize("shift", [0.0, 0.1, -3.3])
def test_differences_that_do_not_vary_have_no_p(shift):
    first = [70.1, 71.7, 69.3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert table.paired_p([value + shift for value in first], first) is None


def test_small_differences_that_do_vary_have_one():
    assert table.paired_p([70.001, 71.002, 69.003], [70.0, 71.0, 69.0]) == pytest.approx(
        1 - 12**0.5 / 14**0.5, abs=1e-6
    )


def test_a_variant_s_own_baseline_comes_first():
    variants = (*VARIANTS[:2], Variant("worse", {}, baseline="better"))
    results = RESULTS | {"worse": {42: {"stsb_dev": 70.0}}}
    assert cell(results, "worse", variants).difference == -1.0
    text = table.markdown(table.summarize(sweep(), variants, results), sweep())
    assert "| variant | baseline | STS-B dev | paper | Δ | p |" in text
    assert "| worse | better | 70.00 (1) | – | -1.00 | – |" in text
    assert "| base |  | 72.00 ± 2.00 (3) | 82.5 | baseline |  |" in text


def test_the_markdown():
    both = sweep(("stsb_dev", "sts_avg"))
    text = table.markdown(table.summarize(both, VARIANTS, RESULTS), both, ["`a command`", "", "last"])
    lines = text.splitlines()
    assert lines[:3] == ["# A title", "", "SimCSE, Table 3."]
    assert lines[4] == (
        "STS-B dev: better has the highest mean, 74.00; none of 1 rows differ from their baseline with p < 0.05."
    )
    lines = lines[2:]
    assert lines[4] == "| variant | STS-B dev | paper | Δ | p | STS avg. | paper | Δ | p |"
    assert lines[5] == "| --- |" + " ---: |" * 8
    assert lines[6] == "| base | 72.00 ± 2.00 (3) | 82.5 | baseline |  | – | – | baseline |  |"
    assert lines[7] == "| better | 74.00 ± 3.00 (3) | 84.0 | +2.00 | 0.074 | 60.00 (1) | 76.25 | – | – |"
    assert lines[8] == r"| a\|b | – | – | – | – | – | – | – | – |"
    assert "paired two-sided t-test" in lines[10]
    assert "(42, 43, 44)" in lines[10]
    assert "11 of 18 are missing" in lines[10]
    assert lines[11:] == ["", "`a command`", "", "last"]
    assert text.endswith("last\n")
    assert "**" not in text


def test_a_table_begins_with_what_it_shows():
    variants = (*VARIANTS[:2], Variant("worst", {}))
    results = RESULTS | {"worst": {42: {"stsb_dev": 20.1}, 43: {"stsb_dev": 22.0}, 44: {"stsb_dev": 24.0}}}
    found = table.findings(table.summarize(sweep(), variants, results), sweep())
    assert found == (
        "STS-B dev: better has the highest mean, 74.00; "
        "1 of 2 rows differs from its baseline with p < 0.05, worst most (-49.97)."
    )
    assert table.findings(table.summarize(sweep(), variants, {}), sweep()) == ""


def test_the_markdown_has_no_column_of_the_paper_s_where_it_says_nothing():
    variants = (Variant("base", {}), Variant("better", {}))
    text = table.markdown(table.summarize(sweep(), variants, RESULTS), sweep())
    assert "| variant | STS-B dev | Δ | p |" in text
    assert "missing" not in text


def test_the_csv_has_every_number():
    both = sweep(("stsb_dev", "sts_avg"))
    rows = list(csv.DictReader(io.StringIO(table.csv(table.summarize(both, VARIANTS, RESULTS), both))))
    assert [(row["variant"], row["metric"]) for row in rows[:3]] == [
        ("base", "stsb_dev"),
        ("base", "sts_avg"),
        ("better", "stsb_dev"),
    ]
    better = rows[2]
    assert (better["n"], better["mean"], better["std"], better["paper"]) == ("3", "74", "3", "84")
    assert (better["baseline"], better["difference"], better["p"][:7]) == ("base", "2", "0.07417")
    assert (better["seed_42"], better["seed_43"], better["seed_44"]) == ("71", "74", "77")
    assert (rows[4]["variant"], rows[4]["n"], rows[4]["mean"], rows[4]["p"]) == ("a|b", "0", "", "")


def texts(pictures):
    return re.findall(r"<text[^>]*>(.*?)</text>", pictures["svg"].decode())


def test_the_plot_shows_both_and_is_the_same_every_time():
    rows = table.summarize(sweep(), VARIANTS, RESULTS)
    first, second = table.plot(rows, sweep()), table.plot(rows, sweep())
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
    there = texts(table.plot(table.summarize(sweep(), variants, results), sweep()))
    ticks = [float(text) for text in there if re.fullmatch(r"[\d.]+", text)]
    ours, theirs = [tick for tick in ticks if 80.5 < tick < 81.5], [tick for tick in ticks if tick < 80]
    assert len(ours) >= 2 and len(theirs) >= 2


def test_the_plot_says_what_its_rows_are():
    fields = [{"model.dropout": 0.0}, {"model.dropout": 0.1, "seed": 1}, {"seed": 1, "views.positive": "shared"}]
    variants = [Variant(f"v{number}", each) for number, each in enumerate(fields)]

    def about(variants):
        return table.what_rows_are(table.summarize(sweep(baseline="v0"), variants, {}))

    assert about(variants) == "Rows differ in model.dropout, seed, views.positive."
    assert about(variants[:1]) == ""
    assert about([Variant("v0", {"a": 1, "b": [1]}), Variant("v1", {"a": 1, "b": [2]})]) == "Rows differ in b."
    many = [Variant(f"v{n}", {f"f{m}": n for m in range(6)}) for n in range(2)]
    assert about(many) == "Rows differ in f0, f1, f2, f3 and 2 more."


def test_the_plot_takes_one_seed_and_none_and_many_rows():
    empty = texts(table.plot(table.summarize(sweep(), VARIANTS[2:], {}), sweep()))
    assert "paper" not in empty and "Δ" not in empty
    variants = [Variant(f"$\\tau$ {number}_x^2", {}, baseline=f"$\\tau$ {number % 2}_x^2") for number in range(20)]
    results = {variant.name: {42: {"stsb_dev": 70.0}} for variant in variants}
    there = texts(table.plot(table.summarize(sweep(), variants, results), sweep()))
    assert "$\\tau$ 19_x^2" in there  # not read as a formula
    assert "our baseline" not in there  # there are two
    assert "paper" not in there


def test_four_files_are_written(tmp_path):
    rows = table.write(tmp_path / "new", "name", sweep(), VARIANTS, RESULTS, ["a note"])
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["name.csv", "name.md", "name.png", "name.svg"]
    assert (tmp_path / "new" / "name.md").read_text() == table.markdown(rows, sweep(), ["a note"])
    assert (tmp_path / "new" / "name.csv").read_text() == table.csv(rows, sweep())
    assert (tmp_path / "new" / "name.png").read_bytes() == table.plot(rows, sweep())["png"]


def test_a_folder_that_cannot_be_written_to_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        table.write(tmp_path / "file", "name", sweep(), VARIANTS, RESULTS)


def test_other_pairs_have_their_own_heading_everywhere(tmp_path):
    named = METRICS | {"stsb_dev": "my|pairs.tsv"}
    variants = [variant._replace(paper={}) for variant in VARIANTS]
    table.write(tmp_path, "name", sweep(), variants, RESULTS, headings=named)
    text = (tmp_path / "name.md").read_text()
    assert "| my\\|pairs.tsv | Δ | p |" in text and "my\\|pairs.tsv: better has the highest mean" in text
    for kind in ("md", "csv", "svg"):
        text = (tmp_path / f"name.{kind}").read_text()
        assert "pairs.tsv" in text and "STS-B" not in text and "stsb" not in text and "paper's" not in text
