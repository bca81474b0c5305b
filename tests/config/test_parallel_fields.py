import pytest

from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config
from simcse_jax.errors import UserError


def test_several_processes_need_to_know_each_other():
    config = default_config()
    config.parallel.processes, config.parallel.coordinator, config.parallel.process_id = 2, "host:1234", 1
    validate(config)
    for field, value in (("process_id", 2), ("coordinator", "host")):
        before, config.parallel[field] = config.parallel[field], value
        with pytest.raises(UserError, match=rf"^config\.parallel\.{field}="):
            validate(config)
        config.parallel[field] = before
