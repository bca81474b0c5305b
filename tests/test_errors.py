import subprocess
import sys
import warnings

from simcse_jax.command_line import warnings_in_a_line

ENDLESS = (
    "from simcse_jax.command_line import run_command; run_command(lambda: [print('x' * 99) for _ in range(10**5)])"
)


def test_a_reader_that_has_had_enough_is_no_error():
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b"" and process.wait() == 141


def test_warnings_are_a_line_each_without_the_place_in_the_code(capsys):
    with warnings_in_a_line():
        for _ in range(2):
            warnings.warn("2 sentences were cut", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: 2 sentences were cut\n" * 2
