from support import call, refused, train_args

TABLE = "--config=configs/ablations/simcse_table3.py"


def test_what_is_no_sweep_or_has_no_place(tmp_path):
    refused(call("sweep", "--config=configs/unsup_bert.py", f"--workdir={tmp_path}"), "is not a sweep")
    refused(call("sweep", TABLE), "--workdir DIR is missing")
    refused(call("sweep", TABLE, "--workdir=gs://bucket/sweep"), "a sweep's folder must be on a disk")
    refused(call("sweep", TABLE, f"--workdir={tmp_path}", "--config.sweep.only=0.16"), "no variant '0.16'")
    assert not any(tmp_path.iterdir())


def test_any_field_of_a_recipe_is_swept_without_a_file(tiny_bert, corpus, tmp_path):
    args = train_args(tiny_bert, corpus["txt"], corpus["dev"], tmp_path, "--config.sweep.seeds=1")
    refused(call("sweep", TABLE, f"--workdir={tmp_path}", "--over=seed=1"), "has rows of its own")
    done = call("sweep", *args, "--over", "objective.info_nce.temperature=0.05,0.1", "--config.train.max_steps=1")
    assert done.returncode == 0, done.stderr
    assert "=== run 2 of 2, " in done.stdout and " left: temperature=0.1 (seed 1)" in done.stdout
    (table,) = tmp_path.glob("*.md")
    assert "| temperature=0.05 |" in table.read_text() and "| temperature=0.1 |" in table.read_text()
