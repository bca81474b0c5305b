import re
import shutil
import sys

import pytest
from support import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks import pages
from simcse_jax.training.sweeps import table

RESULTS = ROOT / "docs" / "background" / "results"
TABLES = [file for file in sorted(RESULTS.glob("*.csv")) if file.read_text(encoding="utf-8").startswith("variant,")]


@pytest.mark.slow
@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.stem)
def test_a_csv_is_what_its_seeds_give(file):
    assert table.csv(*pages.read(file)) == file.read_text(encoding="utf-8"), "python -m benchmarks.pages"


def test_a_page_links_each_csv_and_has_its_tables_as_the_csv_has_them():
    texts = {page: page.read_text(encoding="utf-8") for page in RESULTS.glob("*.md")}
    linked = set(re.findall(r"\]\((\w+)\.csv\)", "".join(texts.values())))
    assert linked == {file.stem for file in RESULTS.glob("*.csv")}
    assert sum(len(pages.BLOCK.findall(text)) for text in texts.values()) > 5
    for page, text in texts.items():
        assert pages.tables(text, RESULTS) == text, f"{page.name}: python -m benchmarks.pages docs/background/results"


def test_another_number_changes_the_table_and_the_picture_and_what_people_wrote_stays(tmp_path, monkeypatch):
    file, page = tmp_path / "simcse_tableD1.csv", tmp_path / "simcse.md"
    shutil.copy(RESULTS / file.name, file)
    block = "<!-- simcse_tableD1: stsb_dev -->\n\n\n\n<!-- end -->"
    page.write_text(f"# SimCSE: D.1\n\n![Rates: 1 is worst](simcse_tableD1.png)<!-- stsb_dev -->\n\n{block}\n\nNo.\n")
    monkeypatch.setattr(sys, "argv", ["pages", str(tmp_path), "--pictures"])
    pages.main()
    before = page.read_text()
    assert "| 1 | 69.47 ± 1.56 | 64.0 | -11.88 (0.027) |" in before and before.endswith("<!-- end -->\n\nNo.\n")
    file.write_text(file.read_text().replace("79.7555", "99.7555"))
    pages.main()
    after = page.read_text()
    changed = [new for old, new in zip(before.splitlines(), after.splitlines(), strict=True) if new != old]
    assert changed[0].startswith("| dot product | 86.83 ±") and all(line.startswith("| ") for line in changed)
    assert (tmp_path / "simcse_tableD1.png").stat().st_size > 1000
