import pytest
from support.sweeps import RESULTS, VARIANTS, sweep

from simcse_jax.training.sweeps import report, table


@pytest.mark.parametrize("metrics", [("stsb_dev",), ("stsb_dev", "STS12", "sts_avg", "uniformity")])
def test_the_page_has_the_findings_the_picture_the_tables_and_links_to_its_runs(tmp_path, metrics):
    name, notes = "<b>x", ["`simcse-jax sweep --data '<b>'`", "- one\n- two"]
    table.write(tmp_path, name, sweep(metrics), VARIANTS, RESULTS, notes)
    runs = {"base (seed 1)": tmp_path / "a&b" / "seed1", "better <1>": tmp_path / "better" / "seed1"}
    runs["base (seed 1)"].mkdir(parents=True)
    (runs["base (seed 1)"] / "report.html").touch()
    report.write(tmp_path, name, runs)
    page = (tmp_path / "report.html").read_text()
    assert page.index("better has the highest mean, 74.00") < page.index("data:image/svg+xml") < page.index("<table")
    assert "a|b" in page and "72.00 ± 2.00" in page and "<script" not in page and "<b>" not in page
    assert "<pre>simcse-jax sweep --data &#x27;&lt;b&gt;&#x27;</pre>" in page and "- one<br>- two" in page
    assert '<a href="a%26b/seed1/report.html">base (seed 1)</a>' in page and "better &lt;1&gt;" not in page
    assert page.count("<table") == (1 if len(metrics) == 1 else 3)
