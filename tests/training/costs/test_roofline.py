import json

import pytest

from simcse_jax.training.costs.program import Collective, Consumer
from simcse_jax.training.costs.roofline import Report, describe, largest, table


def report(**changes):
    adds = Consumer("f/add", "fusion", "f32[8]", 12, 409_500_000)
    collectives = [Collective("all-reduce", 8, 3, 800_000_000), Collective("all-gather", 8, 1, 80_000_000)]
    fields = {
        "topology": "v5e:2x4", "chips": 8, "batch": 64, "sentences": 192, "compile_seconds": 90.0,
        "memory": {"arguments": 2**30, "temporaries": 2**29}, "passes": {6: 197_000_000_000, 1: 394_000_000_000},
        "hbm_bytes": 819_000_000, "collectives": collectives, "kernels": {"fusions": 1000, "copies": 7},
        "consumers": [adds, Consumer("f/x", "copy", "f32[1], s8[2], s8[3]", 1, 8)],
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
    assert "bound, not a measurement" in describe(full) and "kernels" not in describe(full)
    assert json.loads(json.dumps(full.to_json()))["seconds"] == pytest.approx(0.008)


def test_the_table_compares_with_its_first_row_and_the_largest_consumers_are_listed():
    second = report(topology="v5e:4x4", chips=16, batch=128, sentences=384, passes={1: 3_152_000_000_000})
    _, *rows, _ = table([report(), second]).splitlines()
    assert [" ".join(row.split()) for row in rows] == [
        "v5e:2x4 8 64 1.50 591.0 1470.0 8.00 compute 24,000 100.0%",
        "v5e:4x4 16 128 1.50 3152.0 1470.0 16.00 compute 24,000 50.0%",
    ]
    _, first = largest(report(), 1).splitlines()
    assert first.split() == ["0.409", "GB", "50.0%", "12x", "fusion", "f32[8]", "f/add"]
    heading, _, second = largest(report(), 5).splitlines()
    assert heading == "v5e:2x4: the largest 2 of 2 consumers" and "copy f32[1] and 2 more  f/x" in second


def test_what_is_sent_along_one_axis_of_a_torus_uses_its_links_alone_and_nodes_of_gpus_have_a_second_link():
    def links(topology, *sent):
        exchanges = [Collective("reduce-scatter", 2, 1, 2 * size, axes) for size, axes in sent]
        return report(topology=topology, collectives=exchanges).times["links"]

    along_x, along_y, everywhere = (400_000_000, (0,)), (400_000_000, (1,)), (400_000_000, (0, 1))
    # v5e: 200 GB/s over the links along two axes.
    assert links("v5e:4x4", along_x) == pytest.approx(0.4 / 100)
    assert links("v5e:4x4", along_x, along_y) == pytest.approx(0.8 / 200)
    assert links("v5e:4x4", along_x, (100_000_000, (1,))) == pytest.approx(0.4 / 100)
    assert links("v5e:4x4", along_x, everywhere) == pytest.approx(0.8 / 200)
    assert links("v5e:4x4", (400_000_000, ())) == pytest.approx(0.4 / 200)
    # v5p: 600 GB/s along three.
    assert links("v5p:4x4x4", along_x, along_y) == links("v5p:4x4x4", (800_000_000, (0, 1))) == pytest.approx(0.8 / 400)
    assert links("v5p:4x4x4", along_x, along_y, (400_000_000, (2,))) == pytest.approx(1.2 / 600)
    text = describe(report(collectives=[Collective("reduce-scatter", 2, 1, 800_000_000, (0,))]))
    assert "reduce-scatter      800.00 MB, calls: 1, chips: 2 along x" in text
    exchange = [Collective("all-reduce", 16, 3, 800_000_000)]
    kinds = {"h200:16": 1, "h200:2x8": 2}
    one, two = (report(topology=name, chips=16, nodes=nodes, collectives=exchange) for name, nodes in kinds.items())
    # 2 * 15/16 * 0.8 GB by NVLink; or 2 * 7/8 * 0.8 GB inside of a node, and 2 * 1/2 * 0.1 GB between them.
    assert one.times["links"] == pytest.approx(1.5 / 450) and "nodes" not in one.times
    assert two.times["links"] == pytest.approx(1.4 / 450) and two.times["nodes"] == pytest.approx(0.1 / 50)
    assert "1,007 launches: fusions 1,000, copies 7" in describe(two)
    assert "GPUs: 16" in describe(two) and "chip" not in describe(two)
    assert json.loads(json.dumps(two.to_json()))["bytes_between_nodes"] == 100_000_000
