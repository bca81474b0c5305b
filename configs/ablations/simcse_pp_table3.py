"""SimCSE++, Table 3: off-dropout and dimension-wise contrastive learning, alone and together, on each STS task.

Variants: `base` (BERT-base, the default), `large`, `sbert_base`, `sbert_large` (SBERT's checkpoints of NLI), the blocks
of the table. The paper has the two ideas separately for `base` only. All rows that train have the settings of SimCSE++
(section 5.1), also SimCSE, whose number the paper quotes; those of IS-BERT, CT, ConSERT and SCD have the fields of
their recipes ("released": the negatives of CT's code, and the better of its two encoders). Rows named "(published)" are
their authors' checkpoints, loaded from the hub and not trained: SimCSE's, CT's (mean pooling; made with other settings
than its paper's) and SCD's ([CLS]). GloVe is quoted, and loaded from `data/glove.6B.300d.txt`, without stop words: the
file and the tokenizer of the paper's row are not published. The poolers and post-processing of BERT are SimCSE's rows
(see `simcse_tableC1.py`), with the first-last average of the static word embeddings and the last layer, and whitening
with that of layer 1 too. ConSERT trains on the texts of the STS sets that it is scored on. The file that flow and
whitening are fit on: `simcse-jax build-data nli_sentences --source MNLI SNLI`.

The paper's learning rate for SBERT is 3e-5, the base model's; in its authors' script (run_both.sh) it is 1e-5. Both are
rows. The script names `bert-base-nli-cls-token`, SBERT trained with [CLS]; the paper says only "SBERT on NLI". There is
no script for SBERT-large, so it has the paper's rate. The rows "SBERT" are SBERT's models with mean pooling.

The readings of m and of equation 5 are those of `configs/simcse_plus_plus.py`, which were chosen on STS-B dev; others:
`--config.objective.off_dropout.reading` and `--config.objective.dimension_wise.reading`. The row "dimension-wise" has
the paper's τ_DCL of 5; its authors' code of it (models_vicreg.py) has 10, and its script's output is named "t5".

The files: `simcse-jax build-data nli_sentences --source MNLI SNLI`, and `wiki_sentences` (docs/guides/data.md).
"""

from typing import Any

from ml_collections import config_dict

from simcse_jax.choices import TASKS
from simcse_jax.config import choose_variant, default_config
from simcse_jax.configs import consert, ct, is_bert, scd
from simcse_jax.training.sweeps.variants import Variant, as_recipe, sweep_defaults

COLUMNS = (*TASKS, "sts_avg")
ENCODERS = {  # weights, learning rate
    "base": ("bert-base-uncased", 3e-5),
    "large": ("bert-large-uncased", 8e-6),
    "sbert_base": ("sentence-transformers/bert-base-nli-cls-token", 3e-5),
    "sbert_large": ("sentence-transformers/bert-large-nli-cls-token", 8e-6),
}

AS_IT_IS = {"model.mlp": "none", "train.epochs": 0, "train.max_steps": 0}
FIRST_LAST = AS_IT_IS | {"model.pooler": "avg_static_last"}
LAYER_1 = AS_IT_IS | {"model.pooler": "avg_first_last"}
ON_NLI = {"eval.postprocess_data": "data/nli_sentences.txt"}
FLOW = LAYER_1 | ON_NLI | {"eval.postprocess": "flow"}
WHITENING = ON_NLI | {"eval.postprocess": "whitening"}
CT = AS_IT_IS | {"model.init_from": "Contrastive-Tension/BERT-Base-CT", "model.pooler": "avg"}
GLOVE = AS_IT_IS | {"model.init_from": "glove:data/glove.6B.300d.txt", "model.pooler": "avg"}
SCD = AS_IT_IS | {"model.init_from": "sap-ai-research/BERT-base-uncased-SCD-ACL2022"}

OFF_DROPOUT = {"objective.info_nce.weight": 0.0, "objective.off_dropout.weight": 1.0}
DIMENSION_WISE = {"objective.dimension_wise.weight": 0.1}
SIMCSE_PLUS_PLUS = OFF_DROPOUT | DIMENSION_WISE
SCRIPT = {"train.learning_rate": 1e-5}  # for SBERT-base


def sbert(size: str) -> dict[str, Any]:
    """The fields of SBERT's model of NLI with mean pooling, not trained."""
    return AS_IT_IS | {"model.pooler": "avg", "model.init_from": f"sentence-transformers/bert-{size}-nli-mean-tokens"}


def published(size: str) -> dict[str, Any]:
    """The fields of unsupervised SimCSE's checkpoint, not trained."""
    return AS_IT_IS | {"model.init_from": f"princeton-nlp/unsup-simcse-bert-{size}-uncased"}


def get_config(encoder: str = "base") -> config_dict.ConfigDict:
    """SimCSE++, as `configs/simcse_plus_plus.py`; the weights of its terms are the variants'."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.init_from, config.train.learning_rate = choose_variant(encoder, ENCODERS)
    config.objective.off_dropout.temperature = 0.05
    config.objective.off_dropout.m = 0.9
    config.objective.off_dropout.reading = "released"
    config.objective.dimension_wise.temperature = 5.0
    config.objective.dimension_wise.reading = "paper"
    config.eval.every = 125
    title, columns = f"SimCSE++, {encoder}", (*COLUMNS, "stsb_dev")
    config.sweep = sweep_defaults(title, "SimCSE++, Table 3", columns, baseline="SimCSE")
    return config


def get_variants(encoder: str = "base") -> tuple[Variant, ...]:
    """The rows of the encoder's block."""
    base = get_config(encoder)

    def row(name: str, fields: dict, *scores: float, baseline: str = "SimCSE") -> Variant:
        return Variant(name, fields, dict(zip(COLUMNS, scores, strict=True)), baseline)

    def quoted(name: str, *scores: float) -> Variant:
        return row(name, {}, *scores, baseline="")._replace(quoted=True)

    glove = (55.14, 70.66, 59.73, 68.25, 63.66, 58.02, 53.76, 61.32)
    of_ct = (61.63, 76.80, 68.47, 77.50, 76.48, 74.31, 69.19, 72.05)
    of_scd = (66.94, 78.03, 69.89, 78.73, 76.23, 76.30, 73.18, 74.19)
    whitening = (57.83, 66.90, 60.90, 75.08, 71.31, 68.24, 63.73, 66.28)
    simcse = {
        "base": (68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23, 76.25),
        "large": (70.88, 84.16, 76.43, 84.50, 79.76, 79.26, 73.88, 78.41),
        "sbert_base": (69.41, 80.76, 74.37, 82.61, 77.64, 79.92, 76.62, 77.33),
    }
    plus_plus = (72.92, 83.45, 77.19, 83.46, 79.38, 81.54, 76.79, 79.25)  # of SBERT-base
    blocks = {
        "base": (
            quoted("GloVe (avg.)", *glove),
            row("GloVe (avg.; glove.6B.300d)", GLOVE, *glove),
            row("BERT (first-last avg.)", FIRST_LAST, 39.70, 59.38, 49.67, 66.03, 66.19, 53.87, 62.06, 56.70),
            row("BERT-flow", FLOW, 58.40, 67.10, 60.85, 75.16, 71.22, 68.66, 64.47, 66.55),
            row("BERT-whitening", FIRST_LAST | WHITENING, *whitening),
            row("BERT-whitening (layer 1)", LAYER_1 | WHITENING, *whitening),
            row(
                "IS-BERT", as_recipe(is_bert.get_config(), base), 56.77, 69.24, 61.21, 75.23, 70.16, 69.21, 64.25, 66.58
            ),
            row("CT-BERT", as_recipe(ct.get_config(), base), *of_ct),
            row("CT-BERT (released)", as_recipe(ct.get_config("released"), base), *of_ct),
            row("CT-BERT (published)", CT, *of_ct),
            row(
                "ConSERT", as_recipe(consert.get_config(), base), 64.64, 78.49, 69.07, 79.72, 75.95, 73.97, 67.31, 72.74
            ),
            row("SCD-BERT", as_recipe(scd.get_config(), base), *of_scd),
            row("SCD-BERT (published)", SCD, *of_scd),
            row("SimCSE", {}, *simcse["base"]),
            row("SimCSE (published)", published("base"), *simcse["base"]),
            row("SimCSE++", SIMCSE_PLUS_PLUS, 73.66, 82.36, 75.86, 83.09, 79.76, 79.71, 71.91, 78.05),
            row("off-dropout", OFF_DROPOUT, 69.39, 82.42, 75.91, 82.92, 78.82, 78.86, 71.62, 77.13),
            row("dimension-wise", DIMENSION_WISE, 70.15, 83.46, 74.91, 81.95, 79.83, 79.39, 72.14, 77.40),
        ),
        "large": (
            row(
                "ConSERT",
                as_recipe(consert.get_config("large"), base),
                70.69,
                82.96,
                74.13,
                82.78,
                76.66,
                77.53,
                70.37,
                76.45,
            ),
            row("SimCSE", {}, *simcse["large"]),
            row("SimCSE (published)", published("large"), *simcse["large"]),
            row("SimCSE++", SIMCSE_PLUS_PLUS, 72.37, 85.37, 78.68, 84.69, 79.57, 80.37, 74.05, 79.30),
        ),
        "sbert_base": (
            row("SBERT", sbert("base"), 70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91, 74.89),
            row("SimCSE", {}, *simcse["sbert_base"]),
            row("SimCSE++", SIMCSE_PLUS_PLUS, *plus_plus),
            row("SimCSE at 1e-5", SCRIPT, *simcse["sbert_base"], baseline="SimCSE at 1e-5"),
            row("SimCSE++ at 1e-5", SCRIPT | SIMCSE_PLUS_PLUS, *plus_plus, baseline="SimCSE at 1e-5"),
        ),
        "sbert_large": (
            row("SBERT", sbert("large"), 72.27, 78.46, 74.90, 80.99, 76.25, 79.23, 73.75, 76.55),
            row("SimCSE", {}, 76.16, 83.77, 77.27, 84.33, 79.73, 81.67, 77.25, 80.03),
            row("SimCSE++", SIMCSE_PLUS_PLUS, 76.66, 84.76, 78.53, 84.37, 79.66, 82.37, 78.09, 80.63),
        ),
    }
    chosen = choose_variant(encoder, blocks)
    readings = ("objective.off_dropout.weight", "objective.dimension_wise.weight")
    return tuple(
        row._replace(chosen_on=("stsb_dev",)) if any(row.fields.get(name) for name in readings) else row
        for row in chosen
    )
