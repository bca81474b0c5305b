from ml_collections import config_dict

from simcse_jax.config.fields import default_config
from simcse_jax.models.config import EncoderConfig
from support import CONFIGS

TINY = EncoderConfig.from_hugging_face(CONFIGS["bert"], "test")


def tiny_config(**changes: object) -> config_dict.ConfigDict:
    made = default_config()
    made.update_from_flattened_dict({"data.max_length": 16, "train.batch_size": 32} | changes)
    return made
