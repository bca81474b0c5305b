"""SimCSE++, Table 4: dimension-wise contrastive learning alone, where others post-process, test average.

These are blocks 1 and 2. The pooler of block 1 is that of its first row, the model without training and head; the flow
in block 2 has the average of the last two layers, as in its authors' code. Whitening and flow train no encoder: they
are fit on the embeddings of Wikipedia's sentences (`data/wiki1m_for_simcse.txt`) or of NLI's without labels
(`data/nli_sentences.txt`, one a line). After SimCSE they are fit on NLI's, which the paper leaves open. The paper gives
τ_DCL = 0.05 and leaves open the learning rate and the batch (here those of SimCSE++) and the reading of equation 5: it
is `released`, since with the equation's plain product over the batch, logits of 64 / 0.05 would leave almost no
gradient.

The files: `python -m simcse_jax.build_data nli_sentences --source MNLI SNLI`, and `wiki_sentences --source DUMP`.
"""

from ml_collections import config_dict

from simcse_jax.config import default_config
from simcse_jax.sweeps.variants import Variant, sweep_defaults


def get_config() -> config_dict.ConfigDict:
    """The dimension-wise loss alone, on Wikipedia."""
    config = default_config()
    config.model.pooler = "avg_first_last"
    config.model.mlp = "none"
    config.objective.info_nce.weight = 0.0
    config.objective.dimension_wise.weight = 1.0
    config.objective.dimension_wise.temperature = 0.05
    config.objective.dimension_wise.reading = "released"
    config.eval.every = 125
    config.sweep = sweep_defaults(
        "Dimension-wise loss alone", "SimCSE++, Table 4", ("sts_avg", "stsb_dev"), baseline="none"
    )
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of both blocks, each compared with the first of its block."""
    wiki, nli = "data/wiki1m_for_simcse.txt", "data/nli_sentences.txt"
    as_it_is = {"train.epochs": 0, "train.max_steps": 0}
    simcse = {
        "model.pooler": "cls",
        "model.mlp": "train",
        "objective.info_nce.weight": 1.0,
        "objective.dimension_wise.weight": 0.0,
    }

    def after(method: str, data: str) -> dict[str, str]:
        return {"eval.postprocess": method, "eval.postprocess_data": data}

    def row(name: str, fields: dict, sts_avg: float, baseline: str = "none") -> Variant:
        return Variant(name, fields, {"sts_avg": sts_avg}, baseline)

    return (
        row("none", as_it_is, 56.70),
        row("whitening on wiki", as_it_is | after("whitening", wiki), 61.33),
        row("dimension-wise on wiki", {}, 67.07),
        row("flow on NLI", as_it_is | after("flow", nli) | {"model.pooler": "avg_top2"}, 66.55),
        row("whitening on NLI", as_it_is | after("whitening", nli), 66.28),
        row("dimension-wise on NLI", {"data.train": nli}, 69.03),
        row("SimCSE", simcse, 76.25, "SimCSE"),
        row("SimCSE + whitening", simcse | after("whitening", nli), 69.93, "SimCSE"),
        row("SimCSE + flow", simcse | after("flow", nli), 72.24, "SimCSE"),
    )
