"""SimCSE, Table B.2: two protocols of STS, "all" and "wmean", next to the numbers that others report.

Each run is scored in both, so it is one row here and two in the paper. Quoted are the numbers of SBERT (Reimers and
Gurevych 2019, "all") and of whitening (Su et al. 2021, "wmean"). SBERT is its authors' checkpoint of NLI; nothing is
trained. Whitening is fit on NLI without labels, `data/nli_sentences.txt`, one sentence a line, or on the target: as in
the code of Su et al., on each task's train, dev and test sets together. Its pooler is disputed, see `simcse_table5.py`:
the static word embeddings and the last layer, or, with "(layer 1)", layer 1 and the last.

The file: `simcse-jax build-data nli_sentences --source MNLI SNLI`.
"""

from ml_collections import config_dict

from simcse_jax.choices import TASKS
from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

ALL = (*TASKS, "sts_avg")
WMEAN = (*(f"{task}_wmean" for task in TASKS), "sts_wmean")
SBERT, NLI, TARGET = "SBERT-base (published)", "BERT-base-whitening (NLI)", "BERT-base-whitening (target)"


def get_config() -> config_dict.ConfigDict:
    """BERT-base, without training."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.model.mlp = "none"
    config.train.epochs = 0
    config.sweep = sweep_defaults("Protocols of STS", "SimCSE, Table B.2", (*ALL, *WMEAN), baseline=SBERT)
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of the table."""
    sbert = {"model.init_from": "sentence-transformers/bert-base-nli-mean-tokens", "model.pooler": "avg"}
    nli, target = (
        {"eval.postprocess": "whitening", "eval.postprocess_data": data, "model.pooler": "avg_static_last"}
        for data in ("data/nli_sentences.txt", "target_all")
    )
    layer_1 = {"model.pooler": "avg_first_last"}

    def both(of_all: tuple[float, ...], of_wmean: tuple[float, ...]) -> dict[str, float]:
        return dict(zip((*ALL, *WMEAN), (*of_all, *of_wmean), strict=True))

    of_nli = both(
        (57.83, 66.90, 60.89, 75.08, 71.30, 68.23, 63.73, 66.28),
        (61.43, 65.90, 65.96, 74.80, 73.10, 68.23, 63.73, 67.59),
    )
    of_target = both(
        (42.88, 77.77, 66.27, 63.60, 67.58, 71.34, 60.40, 64.26),
        (63.38, 73.01, 69.13, 74.48, 72.56, 71.34, 60.40, 69.19),
    )
    of_sbert = both(
        (70.97, 76.53, 73.19, 79.09, 74.30, 76.98, 72.91, 74.85),
        (66.35, 73.76, 73.88, 77.33, 73.62, 76.98, 72.91, 73.55),
    )

    def quoted(name: str, columns: tuple[str, ...], *scores: float) -> Variant:
        return Variant(name, {}, dict(zip(columns, scores, strict=True)), quoted=True)

    return (
        Variant(SBERT, sbert, of_sbert, SBERT),
        quoted("SBERT-base (Reimers and Gurevych)", ALL, 70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91, 74.89),
        Variant(NLI, nli, of_nli, NLI),
        Variant(f"{NLI} (layer 1)", nli | layer_1, of_nli, NLI),
        quoted(f"{NLI} (Su et al.)", WMEAN, 61.69, 65.70, 66.02, 75.11, 73.11, 68.19, 63.60, 67.63),
        Variant(TARGET, target, of_target, NLI),
        Variant(f"{TARGET} (layer 1)", target | layer_1, of_target, NLI),
        quoted(f"{TARGET} (Su et al.)", WMEAN, 63.62, 73.02, 69.23, 74.52, 72.15, 71.34, 60.60, 69.21),
    )
