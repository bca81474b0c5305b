import json
import struct

import pytest
from support import run
from support.tracked import STEPS, arguments, expected, killed_stopped_and_resumed

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
def test_an_offline_run_is_one_run_after_a_kill_and_a_preemption(tiny_bert, corpus, tmp_path):
    pytest.importorskip("wandb", reason=REASON)
    workdir = tmp_path / "mine"
    env = {"WANDB_MODE": "offline", "WANDB_PROJECT": "sentences"}
    killed_stopped_and_resumed(arguments(tiny_bert, corpus, workdir, "tensorboard,wandb"), workdir, env)

    files = sorted(workdir.glob("wandb/offline-run-*/*.wandb"))
    starts = [list(records(file)) for file in files]
    known = json.loads((workdir / "wandb.json").read_text())["id"]
    opened = [each.run for start in starts for each in start if each.WhichOneof("record_type") == "run"]
    assert {(one.run_id, one.project, one.display_name) for one in opened} == {(known, "sentences", "mine")}
    assert len(starts) == 3
    config = {named(item): json.loads(item.value_json) for item in opened[0].config.update}
    assert config["train.batch_size"] == 8 and config["eval.tasks"][0] == "STS12"

    curves = {}
    for start in starts[1:]:  # what the first one has of what was lost in the kill is sent again
        for record in start:
            if record.WhichOneof("record_type") == "history":
                for item in record.history.item:
                    curves.setdefault(named(item), []).append((record.history.step.num, json.loads(item.value_json)))
    for name, values in expected(workdir).items():
        own = curves.pop(name)
        assert [step for step, _ in own] == [step for step, _ in values], name  # none twice, none missing
        if name in ("train/loss", "eval/dev"):
            assert own == values
    assert all(name.startswith("_") for name in curves)
    summary = {named(i): i.value_json for r in starts[-1] for i in r.summary.update}
    result = json.loads((workdir / "result.json").read_text())
    assert json.loads(summary["result/dev/spearman"]) == result["dev"]["spearman"]
    assert json.loads(summary["_step"]) == STEPS
    exits = [
        record.exit.exit_code for start in starts for record in start if record.WhichOneof("record_type") == "exit"
    ]
    assert exits[-2:] == [1, 0]  # stopped, ended


@pytest.mark.slow
def test_a_user_who_is_not_logged_in_is_told_at_the_start(tiny_bert, corpus, tmp_path):
    pytest.importorskip("wandb", reason=REASON)
    env = {"WANDB_MODE": "online", "WANDB_API_KEY": "", "HOME": str(tmp_path), "NETRC": str(tmp_path / "none")}
    done = run("train", *arguments(tiny_bert, corpus, tmp_path / "run", "wandb"), env=env)
    assert "wandb login" in done.stderr and "train.report_to=wandb" in done.stderr and done.returncode == 2
