from simcse_jax.config.checks import validate
from simcse_jax.config.fields import default_config

SHORT = {"data.max_length": 16, "train.batch_size": 8, "train.max_steps": 4, "train.log_every": 1, "eval.every": 2}
SHORT |= {"train.learning_rate": 1e-3, "parallel.devices": 2}


def short_run(model, data, dev="", **fields):
    """Of four steps on two devices; `fields` have two underscores in place of a dot."""
    config = default_config()
    chosen = SHORT | {"model.init_from": str(model), "data.train": str(data), "eval.data": str(dev)}
    config.update_from_flattened_dict(chosen | {name.replace("__", "."): value for name, value in fields.items()})
    validate(config)
    return config
