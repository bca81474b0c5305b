import pytest
from support.configs import config_of

from simcse_jax.config.checks import validate
from simcse_jax.errors import UserError


def test_several_processes_need_to_know_each_other():
    given = {"parallel__processes": 2, "parallel__coordinator": "host:1234", "parallel__process_id": 1}
    validate(config_of(**given))
    for field, value in (("process_id", 2), ("coordinator", "host")):
        with pytest.raises(UserError, match=rf"^config\.parallel\.{field}="):
            validate(config_of(**given | {f"parallel__{field}": value}))
