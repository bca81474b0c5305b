"""SimCSE, Table E.1: transfer tasks, unsupervised and supervised, with and without the language-model loss.

SimCSE of all sizes is trained as `configs/{unsup,sup}_{bert,roberta}.py`, with `:mlm` (λ = 0.1) too, SBERT and SRoBERTa
as `configs/sbert_nli.py`, IS-BERT as `configs/is_bert.py`. Rows named "(published)" load their authors' checkpoints
from the hub and train nothing: `princeton-nlp/…` and `sentence-transformers/…` (those with the language-model loss were
not published). GloVe is quoted, and loaded from `data/glove.6B.300d.txt`, without stop words: the file and the
tokenizer of the paper's row are not published. Skip-thought, InferSent and USE are quoted.

The protocol is SentEval's PyTorch classifier, as SimCSE's code sets it. The numbers of "average of BERT", "CLS of BERT"
and SBERT are those of Reimers and Gurevych, who do not state the settings of theirs.

Two rows are also scored after flow and whitening, of which Appendix E only says that "they both hurt performance".
These are fit on NLI without labels, `data/nli_sentences.txt`, one sentence a line. `--config.sweep.only` chooses rows:
each is compared with the model without training, or with the published SBERT, of its block.

The files, with `simcse-jax build-data NAME --source FOLDER …`: `nli`, `nli_pairs` and `nli_sentences` (from
MNLI SNLI), and `wiki_sentences` (from a dump).
"""

from ml_collections import config_dict

from simcse_jax.choices import TRANSFER
from simcse_jax.config import default_config
from simcse_jax.configs import is_bert, sbert_nli
from simcse_jax.configs.ablations.simcse_table5 import (
    AS_IT_IS,
    SUP_BERT,
    SUP_ROBERTA,
    SUP_ROBERTA_LARGE,
    UNSUP_ROBERTA,
    UNSUP_ROBERTA_LARGE,
    published,
)
from simcse_jax.training.sweeps.variants import Variant, as_recipe, sweep_defaults

COLUMNS = (*TRANSFER, "transfer_avg")
BERT, ROBERTA, SIMCSE = "average of BERT-base", "average of RoBERTa-base", "unsup. SimCSE-BERT-base"
SBERT, SROBERTA = "SBERT-base (published)", "SRoBERTa-base (published)"

AVERAGE, CLS = AS_IT_IS | {"model.pooler": "avg"}, AS_IT_IS | {"model.pooler": "cls_before_pooler"}
GLOVE = AVERAGE | {"model.init_from": "glove:data/glove.6B.300d.txt"}
MLM = {"objective.mlm.weight": 0.1}


def get_config() -> config_dict.ConfigDict:
    """Unsupervised SimCSE of BERT-base, as `configs/unsup_bert.py`, also scored on transfer tasks."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.eval.transfer = True
    config.eval.transfer_protocol = "pytorch"
    config.sweep = sweep_defaults("Transfer tasks", "SimCSE, Table E.1", COLUMNS, baseline=BERT)
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of both blocks, and those after post-processing, each compared with its own model."""
    base = get_config()

    def row(name: str, fields: dict, baseline: str, *scores: float) -> Variant:
        return Variant(name, fields, dict(zip(COLUMNS, scores, strict=True)), baseline)

    def quoted(name: str, *scores: float) -> Variant:
        return row(name, {}, "", *scores)._replace(quoted=True)

    def simcse(
        name: str, fields: dict, repository: str, baseline: str, plain: tuple, mlm: tuple
    ) -> tuple[Variant, ...]:
        return (
            row(name, fields, baseline, *plain),
            row(f"{name} (published)", published(repository), baseline, *plain),
            row(f"{name} with MLM", fields | MLM, baseline, *mlm),
        )

    def after(name: str, fields: dict) -> tuple[Variant, ...]:
        data = {"eval.postprocess_data": "data/nli_sentences.txt"}
        return tuple(
            Variant(f"{name} + {method}", fields | data | {"eval.postprocess": method}, baseline=name)
            for method in ("flow", "whitening")
        )

    glove = (77.25, 78.30, 91.17, 87.85, 80.18, 83.00, 72.87, 81.52)
    of_sbert = (83.64, 89.43, 94.39, 89.86, 88.96, 89.60, 76.00, 87.41)
    of_sroberta = (84.91, 90.83, 92.56, 88.75, 90.50, 88.60, 78.14, 87.76)
    sbert = AVERAGE | {"model.init_from": "sentence-transformers/bert-base-nli-mean-tokens"}
    sroberta = AVERAGE | {"model.init_from": "sentence-transformers/roberta-base-nli-mean-tokens"}
    return (
        quoted("GloVe (avg.)", *glove),
        row("GloVe (avg.; glove.6B.300d)", GLOVE, BERT, *glove),
        quoted("Skip-thought", 76.50, 80.10, 93.60, 87.10, 82.00, 92.20, 73.00, 83.50),
        row(BERT, AVERAGE, BERT, 78.66, 86.25, 94.37, 88.66, 84.40, 92.80, 69.54, 84.94),
        *after(BERT, AVERAGE),
        row("CLS of BERT-base", CLS, BERT, 78.68, 84.85, 94.21, 88.23, 84.13, 91.40, 71.13, 84.66),
        row(
            "IS-BERT-base",
            as_recipe(is_bert.get_config(), base),
            BERT,
            81.09,
            87.18,
            94.96,
            88.75,
            85.96,
            88.64,
            74.24,
            85.83,
        ),
        *simcse(
            SIMCSE,
            {},
            "unsup-simcse-bert-base-uncased",
            BERT,
            (81.18, 86.46, 94.45, 88.88, 85.50, 89.80, 74.43, 85.81),
            (82.92, 87.23, 95.71, 88.73, 86.81, 87.01, 78.07, 86.64),
        ),
        *after(SIMCSE, {}),
        Variant(ROBERTA, AVERAGE | {"model.init_from": "roberta-base"}, baseline=ROBERTA),
        *simcse(
            "unsup. SimCSE-RoBERTa-base",
            UNSUP_ROBERTA,
            "unsup-simcse-roberta-base",
            ROBERTA,
            (81.04, 87.74, 93.28, 86.94, 86.60, 84.60, 73.68, 84.84),
            (83.27, 87.76, 95.05, 87.16, 89.02, 90.80, 75.13, 86.90),
        ),
        *simcse(
            "unsup. SimCSE-RoBERTa-large",
            UNSUP_ROBERTA_LARGE,
            "unsup-simcse-roberta-large",
            ROBERTA,
            (82.74, 87.87, 93.66, 88.22, 88.58, 92.00, 69.68, 86.11),
            (84.66, 88.56, 95.43, 87.50, 89.46, 95.00, 72.41, 87.57),
        ),
        quoted("InferSent-GloVe", 81.57, 86.54, 92.50, 90.38, 84.18, 88.20, 75.77, 85.59),
        quoted("Universal Sentence Encoder", 80.09, 85.19, 93.98, 86.70, 86.38, 93.20, 70.14, 85.10),
        row("SBERT-base", as_recipe(sbert_nli.get_config(), base), SBERT, *of_sbert),
        row(SBERT, sbert, SBERT, *of_sbert),
        *simcse(
            "sup. SimCSE-BERT-base",
            SUP_BERT,
            "sup-simcse-bert-base-uncased",
            SBERT,
            (82.69, 89.25, 94.81, 89.59, 87.31, 88.40, 73.51, 86.51),
            (82.68, 88.88, 94.52, 89.82, 88.41, 87.60, 76.12, 86.86),
        ),
        row("SRoBERTa-base", as_recipe(sbert_nli.get_config("roberta"), base), SROBERTA, *of_sroberta),
        row(SROBERTA, sroberta, SROBERTA, *of_sroberta),
        *simcse(
            "sup. SimCSE-RoBERTa-base",
            SUP_ROBERTA,
            "sup-simcse-roberta-base",
            SROBERTA,
            (84.92, 92.00, 94.11, 89.82, 91.27, 88.80, 75.65, 88.08),
            (85.08, 91.76, 94.02, 89.72, 92.31, 91.20, 76.52, 88.66),
        ),
        *simcse(
            "sup. SimCSE-RoBERTa-large",
            SUP_ROBERTA_LARGE,
            "sup-simcse-roberta-large",
            SROBERTA,
            (88.12, 92.37, 95.11, 90.49, 92.75, 91.80, 76.64, 89.61),
            (88.45, 92.53, 95.19, 90.58, 93.30, 93.80, 77.74, 90.23),
        ),
    )
