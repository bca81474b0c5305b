from support import call, refused

TABLE = "--config=configs/ablations/simcse_table3.py"


def test_what_is_no_sweep_or_has_no_place(tmp_path):
    refused(call("sweep", "--config=configs/unsup_bert.py", f"--workdir={tmp_path}"), "is not a sweep")
    refused(call("sweep", TABLE), "--workdir DIR is missing")
    refused(call("sweep", TABLE, "--workdir=gs://bucket/sweep"), "a sweep's folder must be on a disk")
    refused(call("sweep", TABLE, f"--workdir={tmp_path}", "--config.sweep.only=0.16"), "no variant '0.16'")
    assert not any(tmp_path.iterdir())
