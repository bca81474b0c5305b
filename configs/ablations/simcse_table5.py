"""SimCSE, Table 5: sentence embeddings on STS tasks, unsupervised and supervised.

Rows that train: SimCSE of all sizes, as `configs/{unsup,sup}_{bert,roberta}.py`, and the other systems with the fields
of their recipes: SBERT and SRoBERTa (`sbert_nli`), IS-BERT (`is_bert`), CT ("released": the negatives of its code, and
the better of its two encoders) and DeCLUTR. Rows named "(published)" load their authors' checkpoints from the hub and
train nothing: SimCSE's, `princeton-nlp/…`, SBERT's, `sentence-transformers/…`, whose numbers the paper takes over or
reproduces, and those of CT and DeCLUTR, which the paper re-evaluates; CT's are made with other settings than its
paper's. GloVe is quoted, and loaded from `data/glove.6B.300d.txt`, without stop words: the file and the tokenizer of
the paper's row are not published. InferSent and USE are quoted. `--config.sweep.only` chooses rows: each is compared
with the model without training, or with the published SBERT, of its block.

The first-last average is that of the static word embeddings and the last layer. Flow has the average of layer 1 and the
last, as its authors' code (`avg-last-2`). For whitening the pooler is disputed: the paper says "first-last average … as
Su et al.", and their code averages layer 1 and the last. Both are rows, the second with "(layer 1)". Flow and whitening
are fit on NLI without labels, `data/nli_sentences.txt`, one sentence a line.

The files, with `simcse-jax build-data NAME --source FOLDER …`: `nli`, `nli_pairs` and `nli_sentences` (from
MNLI SNLI), and `wiki_sentences` (from a dump). DeCLUTR reads `data/documents.txt`, a sentence a line and a blank line
between documents.
"""

from ml_collections import config_dict

from simcse_jax.choices import TASKS
from simcse_jax.config import default_config
from simcse_jax.configs import ct, declutr, is_bert, sbert_nli
from simcse_jax.training.sweeps.variants import Variant, as_recipe, sweep_defaults

COLUMNS = (*TASKS, "sts_avg")
BERT, ROBERTA = "BERT-base (first-last avg.)", "RoBERTa-base (first-last avg.)"
SBERT, SROBERTA = "SBERT-base (published)", "SRoBERTa-base (published)"

AS_IT_IS = {"model.mlp": "none", "train.epochs": 0, "train.max_steps": 0}


def average(name: str) -> dict:
    """The fields of a checkpoint whose embeddings are the average of the last layer."""
    return AS_IT_IS | {"model.init_from": name, "model.pooler": "avg"}


def published(name: str) -> dict:
    """The fields of a checkpoint of SimCSE's authors; a supervised one keeps its head."""
    head = "always" if name.startswith("sup-") else "none"
    return AS_IT_IS | {"model.init_from": f"princeton-nlp/{name}", "model.mlp": head}


BERT_AS_IT_IS = AS_IT_IS | {"model.pooler": "avg_static_last"}
ROBERTA_AS_IT_IS = BERT_AS_IT_IS | {"model.init_from": "roberta-base"}
SBERT_AS_IT_IS = average("sentence-transformers/bert-base-nli-mean-tokens")
SROBERTA_AS_IT_IS = average("sentence-transformers/roberta-base-nli-mean-tokens")
FLOW = {
    "model.pooler": "avg_first_last",
    "eval.postprocess": "flow",
    "eval.postprocess_data": "data/nli_sentences.txt",
}
WHITENING = FLOW | {"model.pooler": "avg_static_last", "eval.postprocess": "whitening"}
LAYER_1 = WHITENING | {"model.pooler": "avg_first_last"}

UNSUP_ROBERTA = {"model.init_from": "roberta-base", "train.batch_size": 512, "train.learning_rate": 1e-5}
UNSUP_ROBERTA_LARGE = {"model.init_from": "roberta-large", "train.batch_size": 512, "train.learning_rate": 3e-5}
SUP_BERT = {
    "model.mlp": "always",
    "data.train": "data/nli_for_simcse.csv",
    "train.epochs": 3,
    "train.batch_size": 512,
    "train.learning_rate": 5e-5,
}
SUP_ROBERTA = SUP_BERT | {"model.init_from": "roberta-base"}
SUP_ROBERTA_LARGE = SUP_BERT | {"model.init_from": "roberta-large", "train.learning_rate": 1e-5}


def get_config() -> config_dict.ConfigDict:
    """Unsupervised SimCSE of BERT-base, as `configs/unsup_bert.py`."""
    config = default_config()
    config.data.equal_texts = "negatives"  # as in the authors' code
    config.sweep = sweep_defaults("STS tasks", "SimCSE, Table 5", COLUMNS, baseline=BERT)
    return config


def get_variants() -> tuple[Variant, ...]:
    """The rows of both blocks."""
    base = get_config()

    def row(name: str, fields: dict, baseline: str, *scores: float) -> Variant:
        return Variant(name, fields, dict(zip(COLUMNS, scores, strict=True)), baseline)

    def quoted(name: str, *scores: float) -> Variant:
        return row(name, {}, "", *scores)._replace(quoted=True)

    glove = (55.14, 70.66, 59.73, 68.25, 63.66, 58.02, 53.76, 61.32)
    flow = (58.40, 67.10, 60.85, 75.16, 71.22, 68.66, 64.47, 66.55)
    whitening = (57.83, 66.90, 60.90, 75.08, 71.31, 68.24, 63.73, 66.28)
    ct_bert = (61.63, 76.80, 68.47, 77.50, 76.48, 74.31, 69.19, 72.05)
    ct_sbert = (74.84, 83.20, 78.07, 83.84, 77.93, 81.46, 76.42, 79.39)
    of_declutr = (52.41, 75.19, 65.52, 77.12, 78.63, 72.41, 68.62, 69.99)
    unsup_bert = (68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23, 76.25)
    roberta_whitening = (46.99, 63.24, 57.23, 71.36, 68.99, 61.36, 62.91, 61.73)
    unsup_roberta = (70.16, 81.77, 73.24, 81.36, 80.65, 80.22, 68.56, 76.57)
    unsup_roberta_large = (72.86, 83.99, 75.62, 84.77, 81.80, 81.98, 71.26, 78.90)
    sbert = (70.97, 76.53, 73.19, 79.09, 74.30, 77.03, 72.91, 74.89)
    sbert_whitening = (69.65, 77.57, 74.66, 82.27, 78.39, 79.52, 76.91, 77.00)
    sup_bert = (75.30, 84.67, 80.19, 85.40, 80.82, 84.25, 80.39, 81.57)
    sroberta = (71.54, 72.49, 70.80, 78.74, 73.69, 77.77, 74.46, 74.21)
    sroberta_whitening = (70.46, 77.07, 74.46, 81.64, 76.43, 79.49, 76.65, 76.60)
    sup_roberta = (76.53, 85.21, 80.95, 86.03, 82.57, 85.83, 80.50, 82.52)
    sup_roberta_large = (77.46, 87.27, 82.36, 86.66, 83.93, 86.70, 81.95, 83.76)
    return (
        quoted("GloVe (avg.)", *glove),
        row("GloVe (avg.; glove.6B.300d)", average("glove:data/glove.6B.300d.txt"), BERT, *glove),
        row(BERT, BERT_AS_IT_IS, BERT, 39.70, 59.38, 49.67, 66.03, 66.19, 53.87, 62.06, 56.70),
        row("BERT-base-flow", BERT_AS_IT_IS | FLOW, BERT, *flow),
        row("BERT-base-whitening", BERT_AS_IT_IS | WHITENING, BERT, *whitening),
        row("BERT-base-whitening (layer 1)", BERT_AS_IT_IS | LAYER_1, BERT, *whitening),
        row(
            "IS-BERT-base",
            as_recipe(is_bert.get_config(), base),
            BERT,
            56.77,
            69.24,
            61.21,
            75.23,
            70.16,
            69.21,
            64.25,
            66.58,
        ),
        row("CT-BERT-base", as_recipe(ct.get_config(), base), BERT, *ct_bert),
        row("CT-BERT-base (released)", as_recipe(ct.get_config("released"), base), BERT, *ct_bert),
        row("CT-BERT-base (published)", average("Contrastive-Tension/BERT-Base-CT"), BERT, *ct_bert),
        row("unsup. SimCSE-BERT-base", {}, BERT, *unsup_bert),
        row("unsup. SimCSE-BERT-base (published)", published("unsup-simcse-bert-base-uncased"), BERT, *unsup_bert),
        row(ROBERTA, ROBERTA_AS_IT_IS, ROBERTA, 40.88, 58.74, 49.07, 65.63, 61.48, 58.55, 61.63, 56.57),
        row("RoBERTa-base-whitening", ROBERTA_AS_IT_IS | WHITENING, ROBERTA, *roberta_whitening),
        row("RoBERTa-base-whitening (layer 1)", ROBERTA_AS_IT_IS | LAYER_1, ROBERTA, *roberta_whitening),
        row("DeCLUTR-RoBERTa-base", as_recipe(declutr.get_config(), base), ROBERTA, *of_declutr),
        row("DeCLUTR-RoBERTa-base (published)", average("johngiorgi/declutr-base"), ROBERTA, *of_declutr),
        row("unsup. SimCSE-RoBERTa-base", UNSUP_ROBERTA, ROBERTA, *unsup_roberta),
        row("unsup. SimCSE-RoBERTa-base (published)", published("unsup-simcse-roberta-base"), ROBERTA, *unsup_roberta),
        row("unsup. SimCSE-RoBERTa-large", UNSUP_ROBERTA_LARGE, ROBERTA, *unsup_roberta_large),
        row(
            "unsup. SimCSE-RoBERTa-large (published)",
            published("unsup-simcse-roberta-large"),
            ROBERTA,
            *unsup_roberta_large,
        ),
        quoted("InferSent-GloVe", 52.86, 66.75, 62.15, 72.77, 66.87, 68.03, 65.65, 65.01),
        quoted("Universal Sentence Encoder", 64.49, 67.80, 64.61, 76.83, 73.18, 74.92, 76.69, 71.22),
        row("SBERT-base", as_recipe(sbert_nli.get_config(), base), SBERT, *sbert),
        row(SBERT, SBERT_AS_IT_IS, SBERT, *sbert),
        row(
            "SBERT-base-flow (published)",
            SBERT_AS_IT_IS | FLOW,
            SBERT,
            69.78,
            77.27,
            74.35,
            82.01,
            77.46,
            79.12,
            76.21,
            76.60,
        ),
        row("SBERT-base-whitening (published)", SBERT_AS_IT_IS | WHITENING, SBERT, *sbert_whitening),
        row("SBERT-base-whitening (published; layer 1)", SBERT_AS_IT_IS | LAYER_1, SBERT, *sbert_whitening),
        row("CT-SBERT-base", as_recipe(ct.get_config("sbert"), base), SBERT, *ct_sbert),
        row("CT-SBERT-base (published)", average("Contrastive-Tension/BERT-Base-NLI-CT"), SBERT, *ct_sbert),
        row("sup. SimCSE-BERT-base", SUP_BERT, SBERT, *sup_bert),
        row("sup. SimCSE-BERT-base (published)", published("sup-simcse-bert-base-uncased"), SBERT, *sup_bert),
        row("SRoBERTa-base", as_recipe(sbert_nli.get_config("roberta"), base), SROBERTA, *sroberta),
        row(SROBERTA, SROBERTA_AS_IT_IS, SROBERTA, *sroberta),
        row("SRoBERTa-base-whitening (published)", SROBERTA_AS_IT_IS | WHITENING, SROBERTA, *sroberta_whitening),
        row("SRoBERTa-base-whitening (published; layer 1)", SROBERTA_AS_IT_IS | LAYER_1, SROBERTA, *sroberta_whitening),
        row("sup. SimCSE-RoBERTa-base", SUP_ROBERTA, SROBERTA, *sup_roberta),
        row("sup. SimCSE-RoBERTa-base (published)", published("sup-simcse-roberta-base"), SROBERTA, *sup_roberta),
        row("sup. SimCSE-RoBERTa-large", SUP_ROBERTA_LARGE, SROBERTA, *sup_roberta_large),
        row(
            "sup. SimCSE-RoBERTa-large (published)", published("sup-simcse-roberta-large"), SROBERTA, *sup_roberta_large
        ),
    )
