import json
import xml.etree.ElementTree as ElementTree

import pytest

from simcse_jax.evaluation.analysis import rank_report
from simcse_jax.evaluation.analysis.rank import READINGS, Rank


@pytest.fixture(scope="module")
def models():
    """Made-up ranks of two models."""
    found = [
        Rank(batch, count, reading, batch + count, [batch + count - 1, batch + count], [3.25, 4.0], 1e-12)
        for reading in READINGS
        for batch in (64, 128)
        for count in (0, 704)
    ]
    return {"<i>": rank_report.Ranks("runs/<i>", 768, found), "b": rank_report.Ranks("b", 384, found[:4])}


def test_a_table_has_a_row_for_each_size(models):
    header, _, *lines = rank_report.table(models["<i>"]).splitlines()[1:6]
    assert [cell.strip() for cell in header.split("|")] == list(rank_report.HEADER)
    assert [cell.strip() for cell in lines[0].split("|")] == ["64", "0", "64", "63–64", "3.6"]
    assert [cell.strip() for cell in lines[1].split("|")] == ["64", "704", "768", "767–768", "3.6"]


def test_the_files_have_the_numbers(models, tmp_path):
    names = rank_report.write(models, tmp_path, data="STS-B test", about={"seed": 7}, versions={"jax": "1.2.3"})
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())
    found = json.loads((tmp_path / "rank.json").read_text())
    assert (found["data"], found["about"]) == ("STS-B test", {"seed": 7})
    first, second = found["models"]
    assert (first["model"], first["label"], first["dimensions"]) == ("runs/<i>", "<i>", 768)
    assert len(first["ranks"]) == 8 and len(second["ranks"]) == 4
    assert first["ranks"][0]["ranks"] == [63, 64] and first["ranks"][0]["effective_ranks"] == [3.25, 4.0]
    page = (tmp_path / "report.html").read_text()
    assert "with 64 sentences the correlation of 768 dimensions has rank 63–64 (at most 64)" in page
    assert "<td>767–768</td>" in page and "<i>" not in page
    svg = ElementTree.fromstring((tmp_path / "rank.svg").read_text())
    there = {"".join(node.itertext()) for node in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {"<i>", "b", "64 sentences", "128 sentences, effective rank", "the identity's rank"} <= there
