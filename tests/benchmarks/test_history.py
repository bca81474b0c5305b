import json
import sys

import pytest
from support import ROOT

from simcse_jax.errors import UserError

sys.path.insert(0, str(ROOT))
from benchmarks import history, machine, side_by_side
from benchmarks.history import Row

ABOUT = {"cpu": "A Xeon", "cores": 2, "system": "Linux x86_64"}


def contender(rate, ratio, share=None):
    middle = lambda value: value and {"median": value, "min": value / 2, "max": value * 2}  # noqa: E731
    return {"rate": middle(rate), "ours_is": middle(ratio), "share_of_peak": middle(share), "device": "A Xeon"}


CONTENT = {"benchmark": "train_step", "date": "2026-01-02T03:04:05+00:00", "commit": "0123456789", "busy": 0.01}
CONTENT |= {"machine": ABOUT, "results": [{"title": "unsup, float32, batch 64", "unit": "sentences"}]}
CONTENT["results"][0]["contenders"] = {"simcse_jax": contender(40.0, 1.0, 0.5), "pytorch": contender(32.0, 1.25)}
FIGURES = [
    ("unsup, float32, batch 64: simcse_jax", "40", "sentences/s"),
    ("unsup, float32, batch 64: simcse_jax, of the peak", "50", "%"),
    ("unsup, float32, batch 64: pytorch", "32", "sentences/s"),
    ("unsup, float32, batch 64: simcse_jax / pytorch", "1.25", "x"),
]


def add(folder, file, monkeypatch, **change):
    folder.mkdir(exist_ok=True)
    (folder / "train_step.json").write_text(json.dumps(CONTENT | change))
    monkeypatch.setattr(sys, "argv", ["history", "--folder", str(folder), "--history", str(file)])
    history.main()


def test_results_of_each_kind_have_figures_once_and_none_of_busy_machines_or_other_files(tmp_path, monkeypatch, capsys):
    found = list(history.rows(CONTENT))
    assert [tuple(row[4:]) for row in found] == FIGURES
    about = (CONTENT["date"], CONTENT["commit"], "A Xeon, 2 cores", "train_step")
    assert {tuple(row[:4]) for row in found} == {about}
    for result, expected in (
        (CURVE, [("batch 64", "0.5", "s")]),  # what is not finite is none
        (SINGLE, [("a call: ours", "40", "sentences/s"), ("a call: ours, p50", "2", "ms")]),
        (PEAK, [("t: the machine's products, float32", "200", "GFLOP/s")]),
    ):
        assert [tuple(row[4:]) for row in history.rows(CONTENT | {"results": [result]})] == expected
    file = tmp_path / "history.csv"
    monkeypatch.setattr(sys, "argv", ["history", "--folder", str(tmp_path), "--history", str(file)])
    with pytest.raises(UserError, match="no JSON file"):
        history.main()
    for text in ("{", "[]", '{"results": [{}]}', json.dumps({"results": [{}], "machine": ABOUT})):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(UserError, match=r"x.json: is no benchmark's file"):
            history.main()
    assert not file.exists()
    file = tmp_path / "history.csv"
    add(tmp_path / "bench", file, monkeypatch)
    first = file.read_text()
    assert first.splitlines()[0] == "date,commit,machine,benchmark,figure,value,unit" and first.count("\n") == 5
    assert "A Xeon, 2 cores" in capsys.readouterr().out
    add(tmp_path / "bench", file, monkeypatch)
    assert file.read_text() == first and "0 figures added" in capsys.readouterr().out
    file.write_text(first.rstrip("\n"))  # as after an editor
    add(tmp_path / "bench", file, monkeypatch, commit="other")
    assert file.read_text().startswith(first) and file.read_text().count("\n") == 9
    assert file.read_text().count("date,") == 1 and "4 figures added" in capsys.readouterr().out
    add(tmp_path / "bench", tmp_path / "busy.csv", monkeypatch, busy=0.48)
    assert "other processes used 48% of the processors (train_step.json)" in capsys.readouterr().out
    assert (tmp_path / "busy.csv").read_text().count("\n") == 1
    add(tmp_path / "bench", tmp_path / "busy.csv", monkeypatch, busy=None)  # the system does not tell
    assert (tmp_path / "busy.csv").read_text().count("\n") == 5
    counts = iter([[100, 0, 50, 800, 50, 0, 0, 0], [160, 0, 70, 910, 60, 0, 0, 0]])
    monkeypatch.setattr(machine, "_times", lambda: next(counts))
    assert machine.busy(0.0) == 0.4  # 80 of 200
    monkeypatch.setattr(machine, "busy", lambda: 0.5)
    side_by_side.report("train_step", CONTENT["results"], tmp_path / "x.json")
    content = history.read(tmp_path / "x.json")
    assert [tuple(row[4:]) for row in history.rows(content)] == FIGURES
    assert content["busy"] == 0.5 and content["commit"] == machine.commit() and content["date"].endswith("+00:00")
    lines = (ROOT / "benchmarks" / "history.csv").read_text().splitlines()  # the project's own
    assert lines[0] == ",".join(Row._fields)


CURVE = {"axis": "batch", "points": [{"value": 64, "seconds": 0.5}, {"value": 128, "seconds": float("nan")}]}
SINGLE = {"title": "a call", "unit": "sentences", "contenders": {"ours": contender(40.0, 1.0)}}
SINGLE["contenders"]["ours"]["notes"] = {"p50_ms": 2.0, "other": 1}
PEAK = {"title": "t", "unit": "texts", "contenders": {}, "peak_gflops": {"float32": {"median": 200.0}}}
