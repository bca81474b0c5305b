import sys

import pytest

from simcse_jax.commands.command_line import with_new_spellings
from simcse_jax.commands.encode_arguments import parse, renamed
from simcse_jax.errors import UserError


@pytest.mark.parametrize(
    ("old", "new", "warned"),
    [
        (
            ["--dtype", "float16"],
            ["--output-dtype", "float16"],
            ["--dtype is now what --compute-dtype was; use --output-dtype"],
        ),
        (
            ["--dtype=float16"],
            ["--output-dtype=float16"],
            ["--dtype is now what --compute-dtype was; use --output-dtype"],
        ),
        (["--compute-dtype", "bfloat16"], ["--dtype", "bfloat16"], ["--compute-dtype is now --dtype"]),
        (
            ["--compute-dtype=bfloat16", "--dtype", "float32"],
            ["--dtype=bfloat16", "--output-dtype", "float32"],
            ["--compute-dtype is now --dtype", "--dtype is now what --compute-dtype was; use --output-dtype"],
        ),
        (["--processes", "3", "--process-id=1"], ["--parts", "3", "--part=1"], ["is now --parts", "is now --part;"]),
        (["--dtype", "bfloat16", "--parts", "2"], ["--dtype", "bfloat16", "--parts", "2"], []),
    ],
)
def test_earlier_spellings_still_work_and_name_the_new_ones(old, new, warned, capsys):
    assert with_new_spellings(old, renamed(old)) == new
    lines = capsys.readouterr().err.splitlines()
    assert [part in line for part, line in zip(warned, lines, strict=True)] == [True] * len(warned)
    assert all(line.startswith("warning: ") for line in lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ranges", "r.npy"], "--ranges: is for --output-dtype int8 and uint8"),
        (
            ["--calibration", "c.npy", "--output-dtype", "ubinary"],
            "--calibration: is for --output-dtype int8 and uint8",
        ),
        (["--output-dtype", "int8", "--parts", "2", "--part", "0"], "--parts: all need the same ranges of int8"),
        (["--tokens", "--output-dtype", "int8"], "--output-dtype int8: is for sentences"),
        (["--tokens", "--pooler", "cls"], "--pooler: is for sentences"),
        (["--tokens", "--normalize"], "--normalize: is for sentences"),
        (["--tokens", "--truncate-dim", "2"], "--truncate-dim: is for sentences"),
        (["--tokens", "--parts", "2", "--part", "0"], "--parts: is for sentences"),
        (["--tokens"], "--tokens: writes .parquet"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(options, message, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["encode", "--model", "m", "--input", "a.txt", "--output", "o.npy", *options])
    with pytest.raises(UserError, match=message):
        parse()
