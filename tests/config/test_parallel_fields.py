import pytest
from support import ROOT

from simcse_jax.config.checks import validate
from simcse_jax.config.flags import parse as parse_flags
from simcse_jax.errors import UserError


def parse(*args):
    config, _ = parse_flags([f"--config={ROOT}/configs/unsup_bert.py", "--workdir=w", *args])
    validate(config)
    return config


def test_several_processes_need_to_know_each_other():
    two = ("--config.parallel.processes=2", "--config.parallel.coordinator=host:1234")
    assert parse(*two, "--config.parallel.process_id=1").parallel.process_id == 1
    for argument, message in (
        ("--config.parallel.process_id=2", "config.parallel.process_id=2: must be below 2"),
        ("--config.parallel.coordinator=host", "config.parallel.coordinator='host': must be HOST:PORT of process 0"),
    ):
        with pytest.raises(UserError, match=message):
            parse(*two, argument)
