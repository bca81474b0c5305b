import shutil
import sys

import pytest
from support import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks import pages

RESULTS = ROOT / "docs" / "background" / "results"
TABLES = [file for file in sorted(RESULTS.glob("*.csv")) if file.read_text(encoding="utf-8").startswith("variant,")]


@pytest.mark.slow
@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.stem)
def test_a_page_is_what_its_numbers_give(file):
    assert file.with_suffix(".md").is_file()
    for kind, text in pages.pages(file).items():
        written = file.with_suffix(f".{kind}").read_text(encoding="utf-8")
        assert written == text, "python -m benchmarks.pages docs/background/results"


def test_another_number_changes_the_page_and_what_people_wrote_stays(tmp_path, monkeypatch):
    for kind in ("csv", "md"):
        shutil.copy(RESULTS / f"simcse_tableD1.{kind}", tmp_path)
    file = tmp_path / "simcse_tableD1.csv"
    file.write_text(file.read_text().replace("79.7555", "99.7555"))
    before = file.with_suffix(".md").read_text()
    file.with_suffix(".md").write_text(before + "\n## What it shows\n\nNothing.\n")
    monkeypatch.setattr(sys, "argv", ["pages", str(tmp_path)])
    pages.main()
    after = file.with_suffix(".md").read_text()
    assert after.endswith("## What it shows\n\nNothing.\n") and after.splitlines()[4] != before.splitlines()[4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["simcse_tableD1.csv", "simcse_tableD1.md"]
