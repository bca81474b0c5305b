from support import call, refused
from support.listed import write_runs


def test_the_table_has_the_best_run_first_and_what_is_no_run_is_named(tmp_path):
    folder = write_runs(tmp_path / "runs")
    done = call("runs", str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    header, first, second, third = done.stdout.splitlines()
    assert header.split()[:5] == ["run", "steps", "best", "stsb_dev", "test"]
    assert first.split()[:4] == ["more/b", "4", "of", "10"] and "72.00" in first
    assert second.split()[:8] == ["a", "10", "of", "10", "done", "8", "71.50", "60.25"]
    assert third.split()[:5] == ["c", "3", "of", "3", "done"]
    labelled = call("runs", f"{folder / 'a'}=first", f"{folder / 'more'}=others").stdout.splitlines()
    assert [line.split()[0] for line in labelled] == ["run", "others/b", "first"]
    (alone,) = [line for line in call("runs", str(folder / "a")).stdout.splitlines() if "71.50" in line]
    assert alone.split()[0] == "a"
    refused(call("runs", str(tmp_path / "none")), "none: no such folder")
    (tmp_path / "empty").mkdir()
    refused(call("runs", str(folder), str(tmp_path / "empty")), "empty: has no run")
