"""Tune a sentence encoder on data of your own (`simcse-jax tune`): what suits the model and the data is found out.

Give `--data FILE` and `--model NAME`, and `--eval FILE` if you have graded pairs or a folder for retrieval. The model
keeps its pooler, head, Normalize, prompts and length. Pairs, triplets and lists of negatives are trained with InfoNCE,
pairs with scores with CoSENT, sentences with classes with SupCon, sentences as in unsupervised SimCSE. Without
`--eval`, rows of pairs and classes judge, in folds or held out. Batch size, steps, learning rate and evaluations
follow from the number of rows (docs/guides/train.md), unless they are given. The model is compared with the one that
it started from, which is kept unless the new one is better.
"""

from collections.abc import Set

from ml_collections import config_dict

from simcse_jax.config import default_config


def get_config() -> config_dict.ConfigDict:
    """The fields that do not depend on model and data."""
    config = default_config()
    config.model.init_from = config.data.train = config.eval.data = ""
    config.model.keep_settings = True
    config.train.warmup = 0.1
    config.eval.against_start = True
    return config


def complete(config: config_dict.ConfigDict, given: Set[str]) -> None:
    """Sets the others, but for those that are `given`."""
    from simcse_jax.training import tuning  # imports JAX, for which `--help` need not wait

    tuning.complete(config, given)
