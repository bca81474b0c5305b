import csv
import io

import pytest
from support.sweeps import RESULTS, VARIANTS, sweep

from simcse_jax.errors import UserError
from simcse_jax.training.sweeps import table
from simcse_jax.training.sweeps.metrics import HEADINGS
from simcse_jax.training.sweeps.picture import plot
from simcse_jax.training.sweeps.summary import summarize
from simcse_jax.training.sweeps.variants import Variant

QUOTED = Variant("GloVe", {}, {"stsb_dev": 58.0, "sts_avg": 61.3}, quoted=True)
MANY = ("stsb_dev", "STS12", "sts_avg", "uniformity", "best_step")


def test_the_markdown_in_which_a_variant_s_own_baseline_comes_first():
    both = sweep(("stsb_dev", "sts_avg"))
    text = table.markdown(summarize(both, VARIANTS, RESULTS), both, ["`a command`", "", "last"])
    lines = text.splitlines()
    assert lines[:3] == ["# A title", "", "SimCSE, Table 3."]
    assert lines[4].startswith("STS-B dev: better has the highest mean, 74.00; none of 1 rows") and not lines[5]
    assert lines[6:12] == [
        "**Ours**",
        "",
        "| variant | n | STS-B dev | STS avg. |",
        "| --- | ---: | ---: | ---: |",
        "| base | 3 | 72.00 ± 2.00 | – |",
        "| better | 3 | 74.00 ± 3.00 | 60.00 (1) |",
    ]
    assert r"| a\|b | 0 | – | – |" in lines and "| better | 84.0 | 76.25 |" in lines
    assert "| better | base | +2.00 (0.074) | – |" in lines
    assert all(part in lines[-5] for part in ("paired two-sided t-test", "(42, 43, 44)", "11 of 18 are missing"))
    assert lines[-4:] == ["", "`a command`", "", "last"] and text.endswith("last\n")
    plain = table.markdown(summarize(sweep(), (Variant("base", {}), Variant("better", {})), RESULTS), sweep())
    assert "**The paper's**" not in plain and "missing" not in plain
    variants = (*VARIANTS[:2], Variant("worse", {}, baseline="better"))
    results = RESULTS | {"worse": {42: {"stsb_dev": 70.0}}}
    assert "| worse | better | -1.00 |" in table.markdown(summarize(sweep(), variants, results), sweep())


def found(names, results, **fields):
    variants = [Variant(name, {}) if isinstance(name, str) else name for name in names]
    return table.findings(summarize(sweep(**fields), variants, results), sweep(**fields))


def test_a_table_begins_with_what_it_shows_and_how_far_the_order_is_the_paper_s():
    worst = {"worst": {seed: {"stsb_dev": value} for seed, value in ((42, 20.1), (43, 22.0), (44, 24.0))}}
    assert found(("base", "better", "worst"), RESULTS | worst) == (
        "STS-B dev: better has the highest mean, 74.00; "
        "1 of 2 rows differs from its baseline with p < 0.05 after Holm's correction, worst most (-49.97)."
    )
    assert found(VARIANTS, {}) == ""
    # The best row is one of those with the most seeds: others may be worse at every seed that they share.
    assert found(("base", "better", "lucky"), RESULTS | {"lucky": {44: {"stsb_dev": 76.0}}}) == (
        "STS-B dev: better has the highest mean, 74.00, of the 2 rows with 3 seeds; "
        "none of 1 rows differ from their baseline with p < 0.05."
    )
    one_seed = {name: {42: {"stsb_dev": value}} for name, value in (("base", 70.0), ("better", 71.0))}
    assert found(("base", "better"), one_seed) == "STS-B dev: better has the highest mean, 71.00."  # without a test
    close = {seed: {"stsb_dev": row["stsb_dev"] + 1e-5 * seed} for seed, row in RESULTS["base"].items()}
    text = found(("base", "better"), RESULTS | {"better": close})
    assert text.startswith("STS-B dev: better has the highest mean, 72.00; 1 of 1 rows differs from its baseline")
    same = found(("base", "better"), RESULTS | {"better": RESULTS["base"]})
    assert same == "STS-B dev: all rows have the same mean."
    # Of seven rows whose only difference from the baseline is chance, one has a p below 0.05 in every third table.
    base = {seed: {"stsb_dev": 70.0} for seed in (42, 43, 44)}
    clear = {42: {"stsb_dev": 71.0}, 43: {"stsb_dev": 71.4}, 44: {"stsb_dev": 71.8}}
    results = {"base": base, **{f"row {number}": clear for number in range(7)}}
    assert "none of 7 rows differ from their baseline with p < 0.05 after Holm's" in found(results, results)
    assert "1 of 1 rows differs from its baseline with p < 0.05, row 0" in found(("base", "row 0"), results)
    # SimCSE, Table D.1, and means that were measured here: the best is the same, the order is not.
    values = {"dot": (80.16, 85.9), "0.001": (80.63, 84.9), "0.01": (80.19, 85.4), "0.05": (81.35, 86.2)}
    values |= {"0.1": (80.80, 82.0), "1": (69.47, 64.0)}
    variants = [Variant(name, {}, {"stsb_dev": paper}) for name, (_, paper) in values.items()]
    results = {name: {42: {"stsb_dev": mean}} for name, (mean, _) in values.items()}
    text = found(variants, results, baseline="0.05")
    assert text.endswith("Spearman's ρ with the paper's values is 0.43, over 6 rows.")
    assert "ρ" not in found(variants[:2], results, baseline="0.05")


def test_the_csv_has_every_number_and_a_row_chosen_on_what_it_reports_is_marked():
    both = sweep(("stsb_dev", "sts_avg"))
    rows = list(csv.DictReader(io.StringIO(table.csv(summarize(both, VARIANTS, RESULTS), both))))
    expected = [("base", "stsb_dev"), ("base", "sts_avg"), ("better", "stsb_dev")]
    assert [(row["variant"], row["metric"]) for row in rows[:3]] == expected
    better = rows[2]
    assert (better["n"], better["mean"], better["std"], better["paper"]) == ("3", "74", "3", "84")
    assert (better["baseline"], better["difference"], better["p"][:7]) == ("base", "2", "0.07417")
    assert (better["seed_42"], better["seed_43"], better["seed_44"]) == ("71", "74", "77")
    assert (rows[4]["variant"], rows[4]["n"], rows[4]["mean"], rows[4]["p"]) == ("a|b", "0", "", "")
    variants = (VARIANTS[0], Variant("better", {}, chosen_on=("stsb_dev",)))
    both = sweep(("stsb_dev", "STS12"), report_once=("STS12",))
    rows = summarize(both, variants, RESULTS)
    text = table.markdown(rows, both)
    assert "STS-B dev: better has the highest mean, 74.00 †;" in text and "| better | 3 | 74.00 ± 3.00 † |" in text
    assert "†: what a row is, its reading or its rate, was chosen on this column, which flatters it." in text
    assert "Held out, seen by no choice: STS12." in text
    assert [row["chosen"] for row in csv.DictReader(io.StringIO(table.csv(rows, both)))] == ["", "", "yes", ""]
    assert "†" not in table.markdown(summarize(both, VARIANTS, RESULTS), both)


def test_four_files_are_written_or_none_and_other_pairs_have_their_own_heading_everywhere(tmp_path):
    rows = table.write(tmp_path / "new", "name", sweep(), VARIANTS, RESULTS, ["a note"])
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["name.csv", "name.md", "name.png", "name.svg"]
    assert (tmp_path / "new" / "name.md").read_text() == table.markdown(rows, sweep(), ["a note"])
    assert (tmp_path / "new" / "name.csv").read_text() == table.csv(rows, sweep())
    assert (tmp_path / "new" / "name.png").read_bytes() == plot(rows, sweep())["png"]
    with pytest.raises(UserError, match="cannot be written"):
        table.write(tmp_path / "new" / "name.md", "name", sweep(), VARIANTS, RESULTS)
    named = HEADINGS | {"stsb_dev": "my|pairs.tsv"}
    variants = [variant._replace(paper={}) for variant in VARIANTS]
    table.write(tmp_path, "name", sweep(), variants, RESULTS, headings=named)
    text = (tmp_path / "name.md").read_text()
    assert "| my\\|pairs.tsv |" in text and "my\\|pairs.tsv: better has the highest mean" in text
    for kind in ("md", "csv", "svg"):
        text = (tmp_path / f"name.{kind}").read_text()
        assert "pairs.tsv" in text and "STS-B" not in text and "stsb" not in text and "paper's" not in text


def test_a_quoted_row_has_the_paper_s_values_alone_and_metrics_stand_in_three_tables():
    rows = summarize(sweep(), [*VARIANTS, QUOTED], RESULTS)
    text = table.markdown(rows, sweep())
    assert "| GloVe (quoted) | 58.0 |" in text and "Quoted: another system" in text
    assert "3 of 9 are missing" in text  # those of a|b
    only = table.markdown(summarize(sweep(), [QUOTED], {}), sweep())
    assert "All rows are quoted from the paper; nothing is run." in only and "seeds" not in only
    line = next(row for row in csv.DictReader(io.StringIO(table.csv(rows, sweep()))) if row["variant"] == "GloVe")
    assert (line["n"], line["mean"], line["paper"], line["difference"]) == ("0", "", "58", "")
    many = sweep(MANY)
    values = {  # by seed, in the order of MANY
        "base": {42: (70.0, None, 60.0, -2.0, 10), 43: (None, None, 60.5, None, 10)},
        "better": {42: (71.0, 50.0, 61.0, -2.1234, 20), 43: (73.0, 51.0, 62.0, None, 20)},
    }
    results = {
        name: {seed: {k: v for k, v in zip(MANY, row, strict=True) if v is not None} for seed, row in seeds.items()}
        for name, seeds in values.items()
    }
    parts = table.markdown(summarize(many, [*VARIANTS, QUOTED], results), many).split("**")
    assert parts[1::2] == ["Ours", "The paper's", "Δ (p)"]
    top, ours, paper, difference = parts[0::2]
    assert "| base | 2 | 70.00 (1) | – | 60.25 ± 0.35 | -2.000 (1) | 10 ± 0 |" in ours and "GloVe" not in ours
    assert "| better | 2 | 72.00 ± 1.41 | 50.50 ± 0.71 | 61.50 ± 0.71 | -2.123 (1) | 20 ± 0 |" in ours
    assert "| GloVe (quoted) | 58.0 | – | 61.30 | – | – |" in paper and "a\\|b" not in paper
    assert "| better | base | +1.00 | – | +1.25 (0.13) | -0.123 | +10 |" in difference
    assert "| base | base" not in difference and "GloVe" not in difference
    assert "n: how many of them are finished" in difference
    # The lower the better; a task has no sentence of its own where its average has one.
    assert "uniformity: better has the lowest mean, -2.123" in top and "best step: base has the lowest mean, 10" in top
    assert "STS12" not in top and "STS avg.: better has the highest mean, 61.50" in top
