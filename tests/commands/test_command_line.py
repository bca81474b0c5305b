import ast
import errno
import os
import subprocess
import sys
import tempfile
import warnings

import pytest

from simcse_jax.commands import command_line
from simcse_jax.commands.command_line import EXIT_CODES, ModelArgument, parse_model, run_command
from simcse_jax.errors import Preempted, UserError

ENDLESS = "import simcse_jax.commands.command_line as it; it.run_command(lambda: [print(9**99) for _ in range(10**5)])"


def ended(main) -> int:
    with pytest.raises(SystemExit) as end:
        run_command(main)
    return end.value.code


def raising(error):
    def main():
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("config.seed:\n  no"), 2, "error: config.seed: no\n"),
        (UserError("x" * 10**5), 2, "error: " + "x" * 500 + " … " + "x" * 500 + "\n"),
        (Preempted("saved"), 75, "saved\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (KeyboardInterrupt("saved; resume with:"), 130, "saved; resume with:\n  python -m simcse_jax.main 'a b'\n"),
        # The machine's errors are the user's to mend.
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/a/b"), 2, "error: /a/b: No space left on device\n"),
        (OSError(errno.ENAMETOOLONG, "Too long"), 2, "error: standard output or a file: Too long\n"),
    ],
)
def test_how_a_command_ends(error, code, said, capsys, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "simcse_jax.main", "a b"])
    assert ended(raising(error)) == code and code in EXIT_CODES and capsys.readouterr().err == said
    assert ended(lambda: None) == 0 and capsys.readouterr().err == ""


class Panic(BaseException):  # as that of a library in Rust
    pass


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ZeroDivisionError("of a\ntest \udcff"), "simcse_jax did not expect this: ZeroDivisionError: of a test"),
        (Panic("index out of range"), "simcse_jax did not expect this: Panic: index out of range"),
        (OSError(errno.EBADF, "Bad", "/a/b"), "simcse_jax did not expect this: OSError"),
        (MemoryError("8 TB"), "not enough memory; smaller batches"),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes"), "not enough memory; smaller batches"),
    ],
)
def test_what_nobody_expected_is_a_line_and_a_full_report(error, said, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "simcse_jax.main", "a b"])
    assert ended(raising(error)) == 70 and 70 in EXIT_CODES
    printed = capsys.readouterr()
    [report] = tmp_path.iterdir()
    assert printed.err.startswith(f"error: {said}") and printed.err.endswith(f"the full report is in {report}\n")
    assert printed.err.count("\n") == 1 and printed.out == ""
    text = report.read_text()
    assert "command: python -m simcse_jax.main 'a b'" in text and "in main" in text and type(error).__name__ in text


ENDINGS = {  # what a command does: its exit code, and what it says
    "print('x')": (2, "error: standard output: No space left on device\n"),  # found when it is flushed
    "[print('x' * 99) for _ in range(10**4)]": (2, "error: standard output or a file: No space left on device\n"),
    "print('x', flush=True)": (2, "error: standard output or a file: No space left on device\n"),
    "(print('x'), sys.exit(0))": (2, "error: standard output: No space left on device\n"),  # as --help ends
    "(print('x'), 1 / 0)": (70, "error: simcse_jax did not expect this: ZeroDivisionError"),
}


def test_output_that_cannot_be_written_and_a_reader_that_closes_the_pipe_have_their_endings(
    tmp_path, capsys, monkeypatch
):
    code = f"""
import os, sys
from simcse_jax.commands.command_line import run_command

def run(what, target):
    sys.stdout.flush()
    if not os.fork():
        os.dup2(os.open(target, os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(os.open(target + ".err" if target != "/dev/full" else {str(tmp_path / "err")!r},
                        os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        run_command(lambda: eval(what))
    return os.waitstatus_to_exitcode(os.wait()[1])

for what in {list(ENDINGS)!r}:
    print((run(what, "/dev/full"), open({str(tmp_path / "err")!r}).read()))
print(run("print(chr(0xe9), chr(0xdcff))", {str(tmp_path / "out")!r}))
"""
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUNBUFFERED": "", "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    *found, last = done.stdout.splitlines()
    for line, (exit_code, said) in zip(found, ENDINGS.values(), strict=True):
        assert ast.literal_eval(line)[0] == exit_code and ast.literal_eval(line)[1].startswith(said), line
        assert ast.literal_eval(line)[1].count("\n") == 1  # nothing of the interpreter's
    assert last == "0" and (tmp_path / "out").read_text() == "\\xe9 \\udcff\n"
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == 141
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    ended(lambda: 1 / 0)
    said = capsys.readouterr().err
    assert "Traceback" in said and said.endswith("ZeroDivisionError: division by zero; the full report is above\n")
    monkeypatch.setenv("SIMCSE_JAX_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        run_command(lambda: 1 / 0)


def test_the_command_is_the_one_that_was_typed_and_warnings_are_a_line_each_at_once(tmp_path, monkeypatch, capsys):
    script = tmp_path / "simcse-jax"
    script.touch(0o755)
    monkeypatch.setattr(sys, "orig_argv", ["/x/bin/python3", str(script), "train", "--workdir", "my run"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command_line.repeat_command() == "simcse-jax train --workdir 'my run'"
    monkeypatch.setenv("PATH", "/x/bin")
    assert command_line.repeat_command() == f"/x/bin/python3 {script} train --workdir 'my run'"
    for started, train, encode in (
        ("/home/My Files/simcse_jax/main.py", "python -m simcse_jax.main", "python -m simcse_jax encode"),
        ("simcse-jax encode", "simcse-jax train", "simcse-jax encode"),
        ("python -m simcse_jax encode", "python -m simcse_jax train", "python -m simcse_jax encode"),
    ):
        monkeypatch.setattr(sys, "argv", [started])
        said = [command_line.invocation("train"), command_line.invocation("encode")]
        assert said == [train, encode]

    def main():
        warnings.warn("this", UserWarning, stacklevel=1)

    before = warnings.showwarning
    ended(main)
    assert capsys.readouterr().err == "warning: this\n" and warnings.showwarning is before
    with pytest.raises(UserError), command_line.shorten_warnings():
        for count in (2, 2, 3):
            warnings.warn(f"{count} sentences were cut", UserWarning, stacklevel=1)
        assert capsys.readouterr().err == "warning: 2 sentences were cut\nwarning: 3 sentences were cut\n"
        warnings.warn("before an error", UserWarning, stacklevel=1)
        raise UserError("no")
    assert capsys.readouterr().err == "warning: before an error\n"
    with pytest.warns(DeprecationWarning, match="not for the user"), command_line.shorten_warnings():
        warnings.warn("not for the user", DeprecationWarning, stacklevel=1)
    assert capsys.readouterr().err == ""


def test_models_name_layers_and_poolers(tmp_path):
    for spec, *expected in (
        ("runs/a", "runs/a", 0, None),
        ("package:name@3", "package:name", 3, None),
        ("model@12@cls", "model", 12, "cls"),
        ("model@cls@2", "model", 2, "cls"),
        ("model@mean", "model", 0, "avg"),
        ("owner/model@main", "owner/model@main", 0, None),  # a revision comes before the options
        ("owner/model@main@3@avg", "owner/model@main", 3, "avg"),
        ("model@3@4", "model@3", 4, None),
        ("model@avg@cls", "model@avg", 0, "cls"),
        ("run@step=200@3@avg", "run@step=200", 3, "avg"),
        ("a@flow@avg@3", "a@flow", 3, "avg"),
    ):
        assert parse_model(spec) == ModelArgument(*expected)
    for spec, *expected in (  # where a command has it
        ("a@whitening", "a", 0, None, "whitening"),
        ("a@avg@flow@3", "a", 3, "avg", "flow"),
        ("a@flow@whitening", "a@flow", 0, None, "whitening"),
        ("a@step=3@whitening", "a@step=3", 0, None, "whitening"),
    ):
        assert parse_model(spec, ("whitening", "flow")) == ModelArgument(*expected)
    for name in ("runs@3", "runs@avg"):  # folders
        (tmp_path / name).mkdir()
    assert parse_model(str(tmp_path / "runs@3")) == ModelArgument(str(tmp_path / "runs@3"))
    assert parse_model(f"{tmp_path}/runs@avg@2") == ModelArgument(f"{tmp_path}/runs@avg", 2)
    assert (ModelArgument("m").details, ModelArgument("m", 1).details) == ("", ", 1 layer")  # a picture names them
    assert (
        ModelArgument("m", 3, "avg").details == ", 3 layers, avg"
        and ModelArgument("m", 0, "avg", "flow").details == ", avg, flow"
    )
