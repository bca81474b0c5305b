import json

import jax.numpy as jnp
import numpy as np
from support.data import raises
from support.pictures import texts

from simcse_jax.evaluation.analysis import rank
from simcse_jax.evaluation.analysis.rank import READINGS, Rank
from simcse_jax.objectives.barlow_twins import cross_correlation


def rows(count: int, size: int = 24, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, size)).astype(np.float32) + 0.5


def test_the_correlation_has_the_rank_that_the_paper_claims_by_the_objective_and_numpy():
    for reading in rank.READINGS:
        view, artificial = rows(7), rows(3, seed=2)
        found = rank.correlation(view, artificial, reading)
        expected = cross_correlation(*map(jnp.asarray, (view, view, artificial)), lambda x: x, reading)
        assert np.allclose(found, expected, atol=1e-6)
        if reading == "released":
            assert np.allclose(found, np.corrcoef(np.concatenate([view, artificial]).T), atol=1e-4)
            constant = rank.correlation(np.ones((4, 2)), np.empty((0, 2)), reading)
            assert np.array_equal(constant, np.zeros((2, 2)))
    found = rank.measure(rows(40), [8, 16], [0, 5, 30], batches=3, seed=0)
    ranks = {(each.reading, each.batch, each.artificial): each for each in found}
    assert len(ranks) == len(found) == 12
    for (reading, batch, artificial), each in ranks.items():
        expected = min(batch + artificial - (reading == "released"), 24)
        assert each.bound == expected and each.ranks == [expected] * 3
        assert all(1 < value < expected for value in each.effective_ranks)
    again = rank.measure(rows(40), [8], [0], batches=3, seed=0)
    assert again[0] == ranks["paper", 8, 0] and again[0].ranks == [8, 8, 8]
    assert rank.measure(rows(40), [8], [0], batches=3, seed=1)[0].effective_ranks != again[0].effective_ranks
    raises("--rank 41: the data have 40", rank.measure, rows(40), [41], [0], batches=1, seed=0)
    raises("not finite", rank.measure, rows(40) * np.nan, [8], [0], batches=1, seed=0)


def test_the_table_and_the_files_have_the_numbers(tmp_path):
    found = [
        Rank(batch, count, reading, batch + count, [batch + count - 1, batch + count], [3.25, 4.0])
        for reading in READINGS
        for batch in (64, 128)
        for count in (0, 704)
    ]
    models = {"<i>": rank.Ranks("runs/<i>", 768, found), "b": rank.Ranks("b", 384, found[:4])}
    header, _, *lines = rank.table(models["<i>"]).splitlines()[1:6]
    assert [cell.strip() for cell in header.split("|")] == list(rank.HEADER)
    assert [cell.strip() for cell in lines[0].split("|")] == ["64", "0", "64", "63–64", "3.6"]
    assert [cell.strip() for cell in lines[1].split("|")] == ["64", "704", "768", "767–768", "3.6"]
    names = rank.write(models, tmp_path, data="STS-B test", about={"seed": 7}, versions={"jax": "1.2.3"})
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
    drawn = texts((tmp_path / "rank.svg").read_bytes())
    assert {"<i>", "b", "64 sentences", "128 sentences, effective rank", "the identity's rank"} <= set(drawn)
