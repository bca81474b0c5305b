import csv
import json

import pytest
from support import call, refused, sentences, train_args

TABLE = "--config=configs/ablations/simcse_table3.py"


def test_any_field_of_a_recipe_is_swept_without_a_file_and_what_is_no_sweep_is_refused(tmp_path, tiny_bert, corpus):
    refused(call("sweep", "--config=configs/unsup_bert.py", f"--workdir={tmp_path}"), "is not a sweep")
    refused(call("sweep", TABLE), "--workdir DIR is missing")
    refused(call("sweep", TABLE, "--workdir=gs://bucket/sweep"), "a sweep's folder must be on a disk")
    refused(call("sweep", TABLE, f"--workdir={tmp_path}", "--config.sweep.only=0.16"), "no variant '0.16'")
    assert not any(tmp_path.iterdir())
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path, "--config.sweep.seeds=1")
    refused(call("sweep", TABLE, f"--workdir={tmp_path}", "--over=seed=1"), "has rows of its own")
    done = call("sweep", *args, "--over", "objective.info_nce.temperature=0.05,0.1", "--config.train.max_steps=1")
    assert done.returncode == 0, done.stderr
    assert "=== run 2 of 2, " in done.stdout and " left: temperature=0.1 (seed 1)" in done.stdout
    (table,) = tmp_path.glob("*.md")
    assert "| temperature=0.05 |" in table.read_text() and "| temperature=0.1 |" in table.read_text()
    page = (tmp_path / "report.html").read_text()
    assert '<a href="temperature%3D0.1/seed1/report.html">temperature=0.1 (seed 1)</a>' in page and "<table" in page


@pytest.mark.slow
def test_tuned_models_are_compared_by_what_is_held_out(tiny_bert, tmp_path):
    texts = sentences(140)
    rows = [(a, b, n % 5) for n, (a, b) in enumerate(zip(texts[:70], texts[70:], strict=True))]
    with open(tmp_path / "pairs.csv", "w", newline="") as file:
        csv.writer(file).writerows([("question", "answer", "score"), *rows])
    args = ["--config=tune", f"--model={tiny_bert}", f"--workdir={tmp_path / 'sweep'}"]
    args += ["--over=train.learning_rate=1e-3,1e-4", "--config.sweep.seeds=1,2", "--config.parallel.devices=1"]
    args += ["--config.train.max_steps=2", "--config.train.batch_size=8"]
    done = call("sweep", *args, f"--data={tmp_path / 'pairs.csv'}")
    assert done.returncode == 0, done.stderr
    measure = "Spearman × 100, mean of 5 folds"
    assert f"| variant | {measure}, before | Δ | p | {measure}, after | Δ | p |" in done.stdout
    assert f"{measure}, before: all rows have the same mean." in done.stdout and "data.folds=5" in done.stdout
    with open(tmp_path / "sweep" / "tune.csv", newline="") as file:
        cells = {(row["variant"], row["metric"].rpartition(" ")[2]): row["seed_2"] for row in csv.DictReader(file)}
    for (variant, metric), value in cells.items():
        result = json.loads((tmp_path / "sweep" / variant / "seed2" / "result.json").read_text())
        assert float(value) == result["against_start"][metric]
    assert len(cells) == 4
    more = ["--config.sweep.run=False", "--config.sweep.metrics=after"]
    again = call("sweep", *args, f"--data={tmp_path / 'pairs.csv'}", *more)
    assert " (2) |" in again.stdout and "–: no" not in again.stdout
    (tmp_path / "few.csv").write_text("question,answer\n" + "a b,c d\n" * 20)
    refused(call("sweep", *args, f"--data={tmp_path / 'few.csv'}"), "eval.data is empty, and a sweep is a table of")
