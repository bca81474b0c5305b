"""SimCSE++, Table 4: dimension-wise contrastive learning alone, where others post-process, on each STS task.

The pooler of block 1 is that of its first row, the model without training and head: the first-last average of the
released code is that of the static word embeddings and the last layer. The rows with flow and with whitening on NLI are
SimCSE's (its Table C.1): flow has the average of layer 1 and the last, as its authors' code; for whitening the pooler
is disputed, so a second row, "(layer 1)", has this one too. In block 3, "DiffCSE (published)" is its authors'
checkpoint, loaded from the hub and not trained, with the numbers of their paper. "DiffCSE" is trained as
`configs/diffcse.py`, next to the numbers that SimCSE++ reports for its own run of their code; "DiffCSE + SimCSE++" as
`configs/diffcse.py:simcse_plus_plus`, our reading, since no code of it is released.

Whitening and flow train no encoder: they are fit on the embeddings of Wikipedia's sentences
(`data/wiki1m_for_simcse.txt`) or of NLI's without labels (`data/nli_sentences.txt`, one a line). After SimCSE they are
fit on NLI's, which the paper leaves open, on the embeddings that SimCSE is scored with. The paper gives τ_DCL = 0.05
(the help of its authors' code says 20 for this loss alone) and leaves open the learning rate and the batch (here those
of SimCSE++) and the reading of equation 5: it is `released`, since with the equation's plain product over the batch,
logits of 64 / 0.05 would leave almost no gradient.

The files: `simcse-jax build-data nli_sentences --source MNLI SNLI`, and `wiki_sentences --source DUMP`.
"""

from ml_collections import config_dict

from simcse_jax.choices import TASKS
from simcse_jax.config import default_config
from simcse_jax.configs import diffcse
from simcse_jax.training.sweeps.variants import Variant, as_recipe, sweep_defaults

COLUMNS = (*TASKS, "sts_avg")


def get_config() -> config_dict.ConfigDict:
    """The dimension-wise loss alone, on Wikipedia."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.pooler = "avg_static_last"
    config.model.mlp = "none"
    config.objective.info_nce.weight = 0.0
    config.objective.dimension_wise.weight = 1.0
    config.objective.dimension_wise.temperature = 0.05
    config.objective.dimension_wise.reading = "released"
    config.eval.every = 125
    columns = (*COLUMNS, "stsb_dev")
    config.sweep = sweep_defaults("Dimension-wise loss alone", "SimCSE++, Table 4", columns, baseline="none")
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of the blocks, each compared with the first of its block; those of DiffCSE with the one trained here."""
    wiki, nli = "data/wiki1m_for_simcse.txt", "data/nli_sentences.txt"
    as_it_is = {"train.epochs": 0, "train.max_steps": 0}
    layer_1 = {"model.pooler": "avg_first_last"}
    simcse = {
        "model.pooler": "cls",
        "model.mlp": "train",
        "objective.info_nce.weight": 1.0,
        "objective.dimension_wise.weight": 0.0,
    }

    def after(method: str, data: str) -> dict[str, str]:
        return {"eval.postprocess": method, "eval.postprocess_data": data}

    def row(name: str, fields: dict, baseline: str, *scores: float) -> Variant:
        return Variant(name, fields, dict(zip(COLUMNS, scores, strict=True)), baseline)

    base = get_config()
    published = as_it_is | {"model.init_from": "voidism/diffcse-bert-base-uncased-sts", "model.pooler": "cls"}
    whitening = as_it_is | after("whitening", nli)
    whitening_nli = (57.83, 66.90, 60.90, 75.08, 71.31, 68.24, 63.73, 66.28)
    return (
        row("none", as_it_is, "none", 39.69, 59.37, 49.67, 66.03, 66.19, 53.88, 62.06, 56.70),
        row(
            "whitening on wiki",
            as_it_is | after("whitening", wiki),
            "none",
            *(45.64, 64.38, 56.57, 70.35, 68.64, 60.32, 63.42, 61.33),
        ),
        row("dimension-wise on wiki", {}, "none", 52.96, 73.85, 62.80, 72.12, 71.25, 68.15, 68.36, 67.07),
        row(
            "flow on NLI",
            as_it_is | after("flow", nli) | layer_1,
            "none",
            *(58.40, 67.10, 60.85, 75.16, 71.22, 68.66, 64.47, 66.55),
        ),
        row("whitening on NLI", whitening, "none", *whitening_nli),
        row("whitening on NLI (layer 1)", whitening | layer_1, "none", *whitening_nli),
        row(
            "dimension-wise on NLI", {"data.train": nli}, "none", 59.25, 74.04, 63.91, 75.85, 72.46, 70.67, 67.05, 69.03
        ),
        row("SimCSE", simcse, "SimCSE", 68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23, 76.25),
        row(
            "SimCSE + whitening",
            simcse | after("whitening", nli),
            "SimCSE",
            *(59.27, 76.68, 67.22, 74.86, 73.85, 68.43, 69.22, 69.93),
        ),
        row(
            "SimCSE + flow",
            simcse | after("flow", nli),
            "SimCSE",
            *(61.33, 78.54, 69.87, 77.47, 76.02, 71.73, 70.70, 72.24),
        ),
        row(
            "DiffCSE (published)",
            published,
            "DiffCSE (published)",
            72.28,
            84.43,
            76.47,
            83.90,
            80.54,
            80.59,
            71.23,
            78.49,
        ),
        row(
            "DiffCSE",
            as_recipe(diffcse.get_config(), base),
            "DiffCSE",
            *(69.41, 82.47, 74.52, 82.82, 80.06, 79.39, 72.05, 77.25),
        ),
        row(
            "DiffCSE + SimCSE++",
            as_recipe(diffcse.get_config("simcse_plus_plus"), base),
            "DiffCSE",
            *(72.68, 83.40, 76.76, 83.66, 80.57, 80.94, 72.82, 78.69),
        ),
    )
