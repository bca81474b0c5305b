"""SimCSE, Table B.3: STS tasks in the protocol "wmean", in which Li et al. (flow) and Su et al. (whitening) report.

The numbers of the models without SimCSE are theirs. Their first-last average is that of layer 1 and the last, for flow
and whitening too. They are fit on NLI without labels, `data/nli_sentences.txt`, one sentence a line, or on the target:
as in their code, on each task's train, dev and test sets together. SBERT is its authors' checkpoint of NLI. SimCSE is
trained, as `configs/unsup_bert.py` and `configs/sup_bert.py`; rows named "(published)" load its authors' checkpoints,
`princeton-nlp/…`.

The files, with `simcse-jax build-data NAME --source FOLDER …`: `nli` and `nli_sentences` (from MNLI SNLI),
and `wiki_sentences` (from a dump).
"""

from ml_collections import config_dict

from simcse_jax.choices import TASKS
from simcse_jax.config import default_config
from simcse_jax.training.sweeps.variants import Variant, sweep_defaults

COLUMNS = (*(f"{task}_wmean" for task in TASKS), "sts_wmean")
BERT, SBERT = "BERT-base (first-last avg.)", "SBERT-base (first-last avg.)"


def get_config() -> config_dict.ConfigDict:
    """Unsupervised SimCSE of BERT-base, as `configs/unsup_bert.py`."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.sweep = sweep_defaults("STS tasks, weighted means", "SimCSE, Table B.3", COLUMNS, baseline=BERT)
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of both blocks."""
    bert = {"model.pooler": "avg_first_last", "model.mlp": "none", "train.epochs": 0, "train.max_steps": 0}
    sbert = bert | {"model.init_from": "sentence-transformers/bert-base-nli-mean-tokens"}
    published = bert | {"model.pooler": "cls"}
    unsup = published | {"model.init_from": "princeton-nlp/unsup-simcse-bert-base-uncased"}
    sup = published | {"model.init_from": "princeton-nlp/sup-simcse-bert-base-uncased", "model.mlp": "always"}
    sup_bert = {
        "model.mlp": "always",
        "data.train": "data/nli_for_simcse.csv",
        "train.epochs": 3,
        "train.batch_size": 512,
        "train.learning_rate": 5e-5,
    }
    of_unsup = (70.14, 79.56, 75.91, 81.46, 79.07, 76.85, 72.23, 76.46)
    of_sup = (70.90, 81.49, 80.19, 83.79, 81.89, 84.25, 80.39, 80.41)

    def after(method: str, data: str) -> dict[str, str]:
        return {"eval.postprocess": method, "eval.postprocess_data": data}

    def row(name: str, fields: dict, baseline: str, *scores: float) -> Variant:
        return Variant(name, fields, dict(zip(COLUMNS, scores, strict=True)), baseline)

    flow_nli, flow_target = after("flow", "data/nli_sentences.txt"), after("flow", "target_all")
    white_nli, white_target = after("whitening", "data/nli_sentences.txt"), after("whitening", "target_all")
    return (
        row(BERT, bert, BERT, 57.86, 61.97, 62.49, 70.96, 69.76, 59.04, 63.75, 63.69),
        row("BERT-base + flow (NLI)", bert | flow_nli, BERT, 59.54, 64.69, 64.66, 72.92, 71.84, 58.56, 65.44, 65.38),
        row(
            "BERT-base + flow (target)",
            bert | flow_target,
            BERT,
            63.48,
            72.14,
            68.42,
            73.77,
            75.37,
            70.72,
            63.11,
            69.57,
        ),
        row(
            "BERT-base + whitening (NLI)",
            bert | white_nli,
            BERT,
            61.69,
            65.70,
            66.02,
            75.11,
            73.11,
            68.19,
            63.60,
            67.63,
        ),
        row(
            "BERT-base + whitening (target)",
            bert | white_target,
            BERT,
            63.62,
            73.02,
            69.23,
            74.52,
            72.15,
            71.34,
            60.60,
            69.21,
        ),
        row("unsup. SimCSE-BERT-base", {}, BERT, *of_unsup),
        row("unsup. SimCSE-BERT-base (published)", unsup, BERT, *of_unsup),
        row(SBERT, sbert, SBERT, 68.70, 74.37, 74.73, 79.65, 75.21, 77.63, 74.84, 75.02),
        row("SBERT-base + flow (NLI)", sbert | flow_nli, SBERT, 67.75, 76.73, 75.53, 80.63, 77.58, 79.10, 78.03, 76.48),
        row(
            "SBERT-base + flow (target)",
            sbert | flow_target,
            SBERT,
            68.95,
            78.48,
            77.62,
            81.95,
            78.94,
            81.13,
            74.97,
            77.42,
        ),
        row(
            "SBERT-base + whitening (NLI)",
            sbert | white_nli,
            SBERT,
            69.11,
            75.79,
            75.76,
            82.31,
            79.61,
            78.66,
            76.33,
            76.80,
        ),
        row(
            "SBERT-base + whitening (target)",
            sbert | white_target,
            SBERT,
            69.01,
            78.10,
            77.04,
            80.83,
            77.93,
            80.50,
            72.54,
            76.56,
        ),
        row("sup. SimCSE-BERT-base", sup_bert, SBERT, *of_sup),
        row("sup. SimCSE-BERT-base (published)", sup, SBERT, *of_sup),
    )
