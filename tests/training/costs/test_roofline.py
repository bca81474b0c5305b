import json

import pytest

from simcse_jax.training.costs.program import Collective
from simcse_jax.training.costs.roofline import Report, describe, table


def report(**changes):
    collectives = [Collective("all-reduce", 8, 3, 800_000_000), Collective("all-gather", 8, 1, 80_000_000)]
    fields = {
        "topology": "v5e:2x4", "chips": 8, "batch": 64, "sentences": 192, "compile_seconds": 90.0,
        "memory": {"arguments": 2**30, "temporaries": 2**29}, "passes": {6: 197_000_000_000, 1: 394_000_000_000},
        "hbm_bytes": 819_000_000, "collectives": collectives,
    }  # fmt: skip
    return Report(**fields | changes)


def test_the_roofline_by_hand():
    full = report()
    # (6 * 0.197 + 0.394) T / 197 T/s; 0.819 G / 819 G/s; (2 * 7/8 * 0.8 + 7/8 * 0.08) G / 200 G/s
    assert full.times == pytest.approx({"compute": 0.008, "HBM": 0.001, "links": 0.00735})
    assert (full.bound, full.seconds) == ("compute", pytest.approx(0.008))
    assert full.sentences_per_second == pytest.approx(24_000)
    assert full.share_of_peak == pytest.approx(0.591 / 0.008 / 197)
    fast = report(passes={1: 197_000_000_000})
    assert (fast.bound, fast.sentences_per_second) == ("links", pytest.approx(192 / 0.00735))
    assert report(hbm_bytes=81_900_000_000).bound == "HBM"
    assert "1.50 of 16 GiB: arguments 1.00, temporaries 0.50" in describe(full)
    assert "bound, not a measurement" in describe(full)
    assert json.loads(json.dumps(full.to_json()))["seconds"] == pytest.approx(0.008)


def test_the_table_compares_with_its_first_row():
    second = report(topology="v5e:4x4", chips=16, batch=128, sentences=384, passes={1: 3_152_000_000_000})
    _, *rows, _ = table([report(), second]).splitlines()
    assert [" ".join(row.split()) for row in rows] == [
        "v5e:2x4 8 64 1.50 591.0 1470.0 8.00 compute 24,000 100.0%",
        "v5e:4x4 16 128 1.50 3152.0 1470.0 16.00 compute 24,000 50.0%",
    ]


def test_nodes_of_gpus_have_a_second_link():
    exchange = [Collective("all-reduce", 16, 3, 800_000_000)]
    kinds = {"h200:16": 1, "h200:2x8": 2}
    one, two = (report(topology=name, chips=16, nodes=nodes, collectives=exchange) for name, nodes in kinds.items())
    # 2 * 15/16 * 0.8 GB by NVLink; or 2 * 7/8 * 0.8 GB inside of a node, and 2 * 1/2 * 0.1 GB between them.
    assert one.times["links"] == pytest.approx(1.5 / 450) and "nodes" not in one.times
    assert two.times["links"] == pytest.approx(1.4 / 450) and two.times["nodes"] == pytest.approx(0.1 / 50)
    assert "GPUs: 16" in describe(two) and "chip" not in describe(two)
    assert json.loads(json.dumps(two.to_json()))["bytes_between_nodes"] == 100_000_000
