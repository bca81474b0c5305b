"""Outputs that cannot be written, or that would take an input's place."""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from support import call
from support import refused as in_one_line

from simcse_jax.errors import UserError
from simcse_jax.host import outputs
from simcse_jax.host.outputs import check_inputs, check_replaced_folder, output_file, output_folder, takes_place_of
from simcse_jax.host.storage import replacing_file


def refused(function, name, *args, match: str, **more) -> None:
    option = more.get("option", "--output")
    with pytest.raises(UserError, match=f"^{option} {re.escape(str(name))}: .*{match}"):
        function(str(name), *args, **more)


def test_a_file_may_be_new_or_replaced_and_a_link_is_followed(tmp_path):
    (tmp_path / "old.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("old.json")
    (tmp_path / "new-link.json").symlink_to("new.json")
    for name, real in (("old", "old"), ("new", "new"), ("link", "old"), ("new-link", "new")):
        assert output_file(str(tmp_path / f"{name}.json")) == tmp_path / f"{real}.json"
    assert output_file(str(tmp_path / "a.NPY"), kinds=(".npy",)) == tmp_path / "a.NPY"
    assert len(list(tmp_path.iterdir())) == 3
    new = output_file(str(tmp_path / "a" / "b" / "new.json"))
    assert not (tmp_path / "a").exists()  # a check makes nothing
    with replacing_file(new) as file:
        file.write(b"{}")
    assert new.read_text() == "{}"


def test_what_can_be_no_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for name, message in (
        (tmp_path, "must be a file that ends in .json"),
        (tmp_path / "file" / "a.json", "Not a directory"),
        (tmp_path / "file" / "b" / "a.json", "Not a directory"),
        (tmp_path / "scores.csv", "must be a file that ends in .json"),
        ("gs://bucket/a.json", "on a disk"),
        ("", "must be a file"),
    ):
        refused(output_file, name, match=message)
    assert output_file("/dev/stdout") == Path("/dev/stdout")
    refused(output_file, "/dev/stdout", streamed=False, match="must be a file")


def test_what_may_not_be_written_is_found_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "old.json").write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode, **_: False)
        refused(output_file, tmp_path / "old.json", match="may not be written")
        refused(output_folder, tmp_path, files=["*.json"], match="old.json: may not be written")

    def fail(dir):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", fail)
    message = "cannot be written: Read-only file system$"
    refused(output_file, tmp_path / "new.json", match=message)
    refused(output_folder, tmp_path / "a" / "b", match=message)
    with pytest.raises(UserError, match=message):
        check_replaced_folder(tmp_path / "export", None)


def test_a_read_only_disk_is_found_by_root_too(tmp_path):
    (tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", tmp_path / "disk"]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        refused(output_file, tmp_path / "disk" / "a.json", match="Read-only file system$")
        refused(output_folder, tmp_path / "disk" / "a" / "b", match="Read-only file system$")
    finally:
        subprocess.run(["umount", tmp_path / "disk"], check=True)


def test_a_folder_may_be_new_and_is_not_created(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("new")
    assert output_folder(str(tmp_path / "a" / "b")) == tmp_path / "a" / "b"
    assert output_folder(str(tmp_path / "link")) == tmp_path / "new"
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]
    for name, message in ((tmp_path / "file", "is a file"), ("gs://b/x", "a folder on a disk"), ("/proc/x", "cannot")):
        refused(output_folder, name, option="--page", match=message)


@pytest.fixture
def places(tmp_path):
    """A file of data, a model, and links to them."""
    (tmp_path / "data.tsv").write_text("x")
    for name in ("config.json", "model.safetensors", "1_Pooling/config.json", "scores.json", "report.html"):
        (tmp_path / "model" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "model" / name).write_text(name)
    (tmp_path / "soft.json").symlink_to("data.tsv")
    os.link(tmp_path / "data.tsv", tmp_path / "hard.json")
    return tmp_path


# By the input: its own names; an index that is to be made.
LOST = {"data.tsv": ["data.tsv", "model/../data.tsv", "soft.json", "hard.json"], "soft.json": ["data.tsv"]}
LOST |= {"model": ["model/config.json", "model/1_Pooling/config.json"]}
LOST |= {"none.json": ["none.json"]}
# New files, and scores that were written there.
KEPT = {"data.tsv": ["new.json"], "model": ["model/new.json", "model/scores.json", "model/report.html", "data.tsv"]}
KEPT |= {"none": ["data.tsv"]}


def test_an_output_takes_the_place_of_an_input_under_any_name(places):
    for expected, table in ((True, LOST), (False, KEPT)):
        for source, outputs_ in table.items():
            for output in outputs_:
                assert takes_place_of(places / output, places / source) is expected, (output, source)
    # What was written to the folder of a model may be written again.
    for name in ("e.npy", "e.parquet", "t.md", "run/config.json", "run/run.json"):
        (places / "model" / name).parent.mkdir(exist_ok=True)
        (places / "model" / name).write_text("")
    for name in ("e.npy", "e.parquet", "t.md", "run/config.json"):
        assert not takes_place_of(places / "model" / name, places / "model")


def test_every_json_file_of_a_run_and_of_an_export_is_one_that_is_read(trained, exported):
    for folder in (trained, exported):
        files = [path for path in folder.rglob("*.json") if "tensorboard" not in path.parts]
        assert files and [path for path in files if not takes_place_of(path, folder)] == []


def test_a_package_s_model_is_an_input(tmp_path, monkeypatch):
    (tmp_path / "some_model" / "files").mkdir(parents=True)
    (tmp_path / "some_model" / "__init__.py").write_text("")
    config = tmp_path / "some_model" / "files" / "config.json"
    config.write_text("{}")
    monkeypatch.syspath_prepend(tmp_path)
    refused(output_file, config, {"--model": "package:some_model"}, match="is a file of --model")
    assert output_file(str(config), {"--model": "package:none_such", "--compare": "package:__main__"}) == config


def test_an_output_that_is_an_input_is_refused(places):
    inputs = {"--data": str(places / "data.tsv"), "--model": str(places / "model"), "--queries": None}
    inputs |= {"--compare": "owner/name", "--other": "package:some", "--store": "gs://bucket/run"}
    refused(output_file, places / "soft.json", inputs, match="is the file of --data, which would be lost")
    refused(output_file, places / "model" / "config.json", inputs, match="is a file of --model")
    for given in (inputs, {"--model": f"{places / 'model'}@step=last"}):
        refused(output_folder, places / "model", given, match="is the folder of --model")
    refused(output_folder, places, inputs, files=["*.tsv"], match="the file of --data")
    refused(output_folder, places, inputs, files=["s*.json"], match="the file of --data")
    assert output_folder(str(places), inputs, files=["*.png"]) == places
    with pytest.raises(UserError, match=r"^--index i: .* is the file of --data"):
        check_inputs([places / "hard.json"], inputs, "--index i")
    assert (places / "data.tsv").read_text() == "x" and stat.S_ISLNK((places / "soft.json").lstat().st_mode)


def test_a_folder_that_is_replaced_must_not_hold_what_is_read(tmp_path):
    (tmp_path / "run").mkdir()
    for folder in ("run/export", "export"):
        check_replaced_folder(tmp_path / folder, tmp_path / "run", ["model"])
    for folder in ("run", ".", "run/model/a"):
        with pytest.raises(UserError, match=r"would take the place of .*run or a part of it"):
            check_replaced_folder(tmp_path / folder, tmp_path / "run", ["model"])


def test_a_line_that_cannot_be_printed_ends_the_command_after_the_results(monkeypatch, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    done = []
    with outputs.printing(True) as say:
        say("before")
    assert capsys.readouterr().out == "before\n"
    monkeypatch.setattr("builtins.print", full)
    with pytest.raises(OSError, match="No space left"), outputs.printing(True) as say:
        say("one")
        say("two")
        done.append("results")
    with pytest.raises(OSError, match="No space left"), outputs.printing(False) as say:
        say("one")
        done.append("more work")
    assert done == ["results"]


READ = ("--config.model.init_from=model", "--config.data.train=data.tsv")
SCORED = ("--config.eval.data=data.tsv", "--config.sweep.metrics=stsb_dev")
COMMANDS = {  # a line, its last option, and an output that is an input
    "evaluate": ("--model=model", "--data=data.tsv", "--output", "hard.json"),
    "search": ("--model=model", "--data=data.tsv", "--query=x", "--output", "model/config.json"),
    "geometry": ("--models", "model@1", "--data=data.tsv", "--output", "out"),
    "analyze": ("--model=model@1", "--data=data.tsv", "--output", "model"),
    "train": ("--config=unsup_bert", *READ, "--workdir", "run"),
    "sweep": ("--config=ablations/simcse_table3", *READ, *SCORED, "--workdir", "table"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_overwrites_what_it_reads(places, command, monkeypatch):
    monkeypatch.chdir(places)
    for name in ("out/geometry.json", "run/metrics.jsonl", "table/simcse_table3.csv"):
        Path(name).parent.mkdir()
        os.link("data.tsv", name)
    before = {path: path.read_bytes() for path in places.rglob("*") if path.is_file()}
    *options, last, output = COMMANDS[command]
    options = [re.sub(r"(?<![.\w])(model|data\.tsv)(?=@|$)", rf"{places}/\1", part) for part in options]
    done = call(command, *options, f"{last}={places / output}")
    in_one_line(done, last)
    assert re.search("is (the|a) (file|folder) of ", done.stderr), done.stderr
    assert before == {path: path.read_bytes() for path in places.rglob("*") if path.is_file()}
