import dataclasses
import json

import pytest
from support.costs import TINY

from simcse_jax.errors import UserError
from simcse_jax.training.costs.plan import ASSUMPTIONS, CorpusPlan, amount, describe_plan, read_plan
from simcse_jax.training.costs.roofline import Report

SIZE = TINY.hidden_size


def plan(text, topology="h200:2x8", nodes=2):
    """Training takes a millisecond a step of 64 sentences at the peak, encoding a tenth of it."""
    fields = {"chips": 16, "batch": 64, "sentences": 64, "compile_seconds": 1.0, "memory": {}, "hbm_bytes": 0}
    empty = Report(topology, passes={}, nodes=nodes, collectives=[], **fields)
    flops = int(empty.chip.flops / 1000)
    reports = (dataclasses.replace(empty, passes={1: amount}) for amount in (flops, flops // 10))
    return CorpusPlan(read_plan(text), TINY, *reports)


def test_a_plan_by_hand_also_of_examples_of_several_columns():
    made = plan("sentences=1e9,tokens=20,epochs=2,train_utilization=0.4,read_rate=1e6,tokenize_rate=1000,cores=10")
    prepare, copy, train, encode, index = made.stages
    assert prepare.bytes == {"text": 1e11, "corpus": 48e9}  # 20 tokens of 5 bytes; of 2 bytes, and 8 for the row
    assert prepare.seconds == {"tokenizing": 1e9 / (2 * 10 * 1000), "network": 1e11 / (2 * 1.25e9)}
    assert (prepare.bound, prepare.least, prepare.chip_hours) == ("tokenizing", 5e4, 0)
    assert copy.least == pytest.approx(48e9 / 1.25e9)
    # 2 * 1e9 / 64 steps of a millisecond, at 0.4 of the bound's speed, by 16 GPUs.
    assert train.least == pytest.approx(2 * 1e9 / 64 * 1e-3 / 0.4, rel=1e-6) and train.bound == "compute"
    assert train.chip_hours == pytest.approx(16 * train.least / 3600)
    assert train.seconds["reading rows"] == pytest.approx(2 * 1e9 / 2e6)
    assert encode.seconds["compute"] == pytest.approx(1e9 / 64 * 1e-4 / 0.5, rel=1e-6) and encode.bound == "tokenizing"
    # Two hosts with half of the text each, which they copy, read twice, and write vectors for.
    assert encode.seconds["network"] == pytest.approx(1e11 / (2 * 1.25e9))
    assert encode.seconds["disk"] == pytest.approx((2 * 1e11 + 1e9 * SIZE * 2) / (2 * 2e9))
    assert encode.bytes == {"vectors": 1e9 * SIZE * 2}
    assert index.least == pytest.approx(1e9 * SIZE * (2 + 4) / (2 * 2e9))  # float16 read, float32 written
    made = plan("sentences=3e9,tokens=20,read_rate=1e6")
    triplets = dataclasses.replace(made, training=dataclasses.replace(made.training, sentences=3 * 64))
    assert made.stages[2].seconds["reading rows"] == pytest.approx(3e9 / 2e6)
    assert triplets.stages[2].seconds["reading rows"] == pytest.approx(1e9 / 2e6)
    assert triplets.stages[2].seconds["compute"] == pytest.approx(made.stages[2].seconds["compute"] / 3)


def test_where_search_ends_and_every_assumption_is_in_the_table_with_bytes_for_people():
    limits = plan("sentences=1e10,tokens=20,memory=64e9").limits
    row = SIZE * 4
    assert limits["rows_on_a_device"] == pytest.approx(0.75 * 151_397_597_184 / row)
    assert limits["devices"] == -(-1e10 // limits["rows_on_a_device"]) and limits["hosts"] == -(-1e10 // (48e9 / row))
    assert plan("sentences=1,tokens=3", "v5e:4x4", 1).assumed["hosts"] == 4
    assert plan("sentences=1,tokens=3,hosts=1", "v5e:4x4", 1).assumed["hosts"] == 1
    assert limits["seconds_a_query"] == pytest.approx(0.75 * 151_397_597_184 / 4.8e12)
    made = plan("sentences=1e10,tokens=22,cores=96")
    text = describe_plan(made)
    for name, assumption in ASSUMPTIONS.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        assert assumption.meaning in line
        assert line.endswith("(given)" if name in ("sentences", "tokens", "cores") else "(assumed)")
    assert "520 GB" in text and "1.1 TB" in text and json.loads(json.dumps(made.to_json()))["assumptions"]["hosts"] == 2
    sizes = {5: "5 B", 1500: "1.5 kB", 520e9: "520 GB", 15.36e12: "15.4 TB", 3.072e16: "30.72 PB"}
    assert {size: amount(size) for size in sizes} == sizes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--plan: no quantity ''"), ("sentences=1e10,", "no quantity ''"), ("sentences=5", "needs tokens"),
        ("tokens=22", "needs sentences"), ("sentence=1e10", "no quantity 'sentence'; the nearest one is sentences"),
        ("sentences=many", "--plan sentences=many: must be a number above 0"),
        ("sentences=nan", "must be a number above 0"), ("sentences=-1", "must be a number above 0"),
    ],
)  # fmt: skip
def test_mistakes_in_a_plan(text, message):
    with pytest.raises(UserError) as error:
        read_plan(text)
    assert message in str(error.value)
