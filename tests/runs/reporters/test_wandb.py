import json
import struct

import pytest

from simcse_jax.config.fields import default_config, flatten
from simcse_jax.runs.metrics_file import Metrics
from simcse_jax.runs.reporters.opening import report_to_all

REASON = "Weights & Biases is not installed: pip install wandb"
BLOCK, HEADER, LAST = 32768, 7, (1, 4)  # of wandb's files: blocks of records, whose parts have a kind


def records(path):
    """The records of an offline run, by wandb's own definition."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts = path.read_bytes(), HEADER, b""
    while place + HEADER <= len(data):
        if (left := BLOCK - place % BLOCK) < HEADER:
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + HEADER])
        place += HEADER + length
        parts += data[place - length : place]
        if kind in LAST:
            yield Record.FromString(parts)
            parts = b""


def named(item):
    return "/".join(item.nested_key) or item.key


@pytest.mark.slow
def test_an_offline_run_is_one_run_after_a_stop(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason=REASON)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_PROJECT", "sentences")
    workdir, fields = tmp_path / "mine", flatten(default_config())
    workdir.mkdir()
    for resumed, steps in ((None, (1, 2)), (1, (2, 3))):
        metrics = Metrics(workdir, resumed)
        report_to_all(metrics, ("wandb",), fields, workdir, resumed)
        for step in steps:
            metrics.write(step, {"loss": step / 2})
        if resumed:
            metrics.finish({"best_step": 2, "dev": {"spearman": 50.0}})
        metrics.close()
    starts = [list(records(file)) for file in sorted(workdir.glob("wandb/offline-run-*/*.wandb"))]
    known = json.loads((workdir / "wandb.json").read_text())["id"]
    kinds = [[(each.WhichOneof("record_type"), each) for each in one] for one in starts]
    opened = [each.run for one in kinds for kind, each in one if kind == "run"]
    assert {(one.run_id, one.project, one.display_name) for one in opened} == {(known, "sentences", "mine")}
    fields = {named(item): json.loads(item.value_json) for item in opened[0].config.update}
    assert fields["train.batch_size"] == 64 and fields["eval.tasks"][0] == "STS12"
    losses = [
        [(each.history.step.num, json.loads(item.value_json)) for kind, each in one if kind == "history"
         for item in each.history.item if named(item) == "train/loss"] for one in kinds
    ]  # fmt: skip
    assert losses == [[(1, 0.5), (2, 1.0)], [(3, 1.5)]]  # none twice, none missing
    summary = {named(item): item.value_json for _, each in kinds[-1] for item in each.summary.update}
    assert json.loads(summary["result/dev/spearman"]) == 50.0
    exits = [each.exit.exit_code for one in kinds for kind, each in one if kind == "exit"]
    assert exits == [1, 0]  # stopped, ended
