"""The isotropy paper, section 4: temperatures in powers of two around the best one.

MPNet-base, as in the paper, which leaves open the learning rate (here that of supervised SimCSE), the length (32
tokens), and whether its loss is symmetric; this is its equation 2, one way, and
`--config.objective.info_nce.symmetric=True` is the other.

The space is measured every 200 steps on the paper's data: the first sentences of STS-B's test pairs (`eval.data` is
SentEval's folder), each as often as it occurs. Section 2.4 counts 1,359 of them, without a rule that would choose them
from the 1,379 of the set; the authors' code reads all 1,379, which is `--config.analysis.sentences=1379`. The
measures are in each run's `metrics.jsonl`, and `simcse-jax analyze --runs` draws them. The model is kept as well: 24
checkpoints of 1.3 GB each (none with `--config.checkpoint.keep_every=0`), of 4,911 steps; the paper's 4,912 count
a last partial batch. The paper gives no score; this table is STS-B dev.

The file: `simcse-jax build-data nli_pairs --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults


def setting(table: str, section: str, baseline: str) -> config_dict.ConfigDict:
    """Entailment pairs of NLI, one epoch of batches of 64, mean pooling; of each table of the paper's ablations."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.init_from = "microsoft/mpnet-base"
    config.model.pooler = "avg"
    config.model.mlp = "none"
    config.data.train = "data/nli_pairs.csv"
    config.data.positives = "entailment"
    config.train.learning_rate = 5e-5
    config.eval.every = 200
    config.analysis.every = 200
    config.analysis.split = "test"
    config.analysis.sentences = 1359
    config.analysis.repeated_sentences = "keep"
    config.checkpoint.keep_every = 200
    title = f"On Isotropy and Learning Dynamics, {section}"
    config.sweep = sweep_defaults(table, title, ("stsb_dev",), baseline=baseline)
    return config


def get_config() -> config_dict.ConfigDict:
    """Temperature 0.05 is the baseline."""
    return setting("Temperatures, by twos", "section 4", baseline="0.05")


def get_variants() -> tuple[Variant, ...]:
    """The three temperatures."""
    temperature = "objective.info_nce.temperature"
    return tuple(Variant(f"{value:g}", {temperature: value}) for value in (0.025, 0.05, 0.1))
