"""SimCSE, Table C.1: flow and whitening, fit on NLI or on the target, on each STS task.

Variants: `bert` (BERT-base, the default) and `sbert` (SBERT's checkpoint of NLI). No row trains anything. The first row
is the model alone, with its numbers of Table 5: the first-last average for BERT, which in this paper is that of the
static word embeddings and the last layer; for SBERT its own pooler, the average of the last layer.

Flow is the authors' code run by SimCSE's. Its `avg-last-2` averages layer 1 and the last (`all_encoder_layers[-0]`, its
issues 11 and 16), and in its target setting it is fit on the train, development and test sets together. For whitening
the pooler is disputed: Appendix C says "first-last average" as Su et al., whose code averages layer 1 and the last.
Both are rows, the second with "(layer 1)". Whitening's own code, too, fits on the three sets of the target.

Sentences of NLI without labels: `data/nli_sentences.txt`, one per line. For transfer tasks after post-processing see
`simcse_tableE1.py`.

The file: `simcse-jax build-data nli_sentences --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.choices import TASKS
from simcse_jax.config import choose_variant, default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

COLUMNS = (*TASKS, "sts_avg")
ENCODERS = {"bert": "bert-base-uncased", "sbert": "sentence-transformers/bert-base-nli-mean-tokens"}
DATA = {"NLI": "data/nli_sentences.txt", "target": "target_all"}
PAPER = {
    "bert": {
        "none": (39.70, 59.38, 49.67, 66.03, 66.19, 53.87, 62.06, 56.70),
        "flow (NLI)": (58.40, 67.10, 60.85, 75.16, 71.22, 68.66, 64.47, 66.55),
        "flow (target)": (53.15, 78.38, 66.02, 62.09, 70.84, 71.70, 61.97, 66.31),
        "whitening (NLI)": (57.83, 66.90, 60.90, 75.08, 71.31, 68.24, 63.73, 66.28),
        "whitening (target)": (42.88, 77.77, 66.28, 63.60, 67.58, 71.34, 60.40, 64.26),
    },
    "sbert": {
        "none": (70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91, 74.89),
        "flow (NLI)": (69.78, 77.27, 74.35, 82.01, 77.46, 79.12, 76.21, 76.60),
        "flow (target)": (66.18, 82.69, 76.22, 73.72, 75.71, 79.99, 73.82, 75.48),
        "whitening (NLI)": (69.65, 77.57, 74.66, 82.27, 78.39, 79.52, 76.91, 77.00),
        "whitening (target)": (52.91, 81.91, 75.44, 72.24, 72.93, 80.50, 72.54, 72.64),
    },
}


def get_config(encoder: str = "bert") -> config_dict.ConfigDict:
    """The model alone."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.init_from = choose_variant(encoder, ENCODERS)
    config.model.pooler = "avg" if encoder == "sbert" else "avg_static_last"
    config.model.mlp = "none"
    config.train.epochs = 0
    config.sweep = sweep_defaults(f"Post-processing, {encoder}", "SimCSE, Table C.1", COLUMNS, baseline="none")
    return config


def get_variants(encoder: str = "bert") -> tuple[Variant, ...]:
    """The rows of the table for the encoder, after the model alone."""
    paper = choose_variant(encoder, PAPER)

    def row(name: str, printed: str, fields: dict) -> Variant:
        return Variant(name, fields, dict(zip(COLUMNS, paper[printed], strict=True)))

    def after(method: str, pooler: str, suffix: str = "") -> list[Variant]:
        return [
            row(
                f"{method} ({data}){suffix}",
                f"{method} ({data})",
                {"model.pooler": pooler, "eval.postprocess": method, "eval.postprocess_data": source},
            )
            for data, source in DATA.items()
        ]

    return (
        row("none", "none", {}),
        *after("flow", "avg_first_last"),
        *after("whitening", "avg_static_last"),
        *after("whitening", "avg_first_last", " (layer 1)"),
    )
