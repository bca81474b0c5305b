"""The fields of scores: during training, at the end, of retrieval, and of how the space changes."""

from typing import Any

from simcse_jax.choices import (
    DEVELOPMENT,
    EXTRA,
    MEASURES,
    POOLERS,
    POSTPROCESSING,
    PROTOCOLS,
    RETRIEVAL,
    STORAGES,
    TASKS,
    USUAL,
)
from simcse_jax.field import (
    at_least,
    each_once,
    empty_or_one_of,
    explain,
    field,
    nonempty,
    one_of,
)

EVALUATION_SECTIONS = {
    "eval": "Scores during training, and at the end.",
    "eval.retrieval": "Scores of retrieval (docs/guides/evaluate.md).",
    "analysis": "How the space changes during training: eight numbers of the last layer (docs/guides/analysis.md).",
}
SPLITS = ("train", "dev", "test")
FEWEST_ANALYSED = 10  # sentences of analysis.sentences


def has_scores(config: Any) -> bool:
    """Whether the run is scored while it trains."""
    return bool(config.eval.data or config.eval.retrieval.data or config.data.held_out)


EVALUATION_FIELDS = {
    "eval.data": field(
        "data/SentEval/data/downstream",
        "SentEval's folder, or a file of graded pairs; empty: nothing is scored but eval.retrieval.",
    ),
    "eval.development": field(
        "stsb",
        "What chooses the best checkpoint: STS-B's or SICK-R's development set of SentEval's folder, or retrieval.",
        one_of((*DEVELOPMENT, RETRIEVAL)),
    ),
    "eval.pooler": field(
        "",
        "The pooler of scores, and of the trained model; empty: model.pooler, that of training.",
        empty_or_one_of(POOLERS),
    ),
    "eval.development_pooler": field(
        "",
        "The pooler of the scores that choose the best checkpoint; empty: that of all scores.",
        empty_or_one_of(POOLERS),
    ),
    "eval.every": field(
        250, "Steps between evaluations; each one also saves a checkpoint. 0: the start and the end alone.", at_least(0)
    ),
    "eval.encoder": field(
        "anchor",
        "Of two encoders (model.dual_encoder), the one that is scored and kept. anchor: that of the anchors; better: "
        "both are scored, and the better one is the model at each step.",
        one_of(("anchor", "better")),
        only="model.dual_encoder",
    ),
    "eval.tasks": field(TASKS, "The tasks that score the best checkpoint at the end.", each_once("task", TASKS)),
    "eval.transfer": field(False, "Also score the transfer tasks at the end.", only="eval.data"),
    "eval.transfer_protocol": field(
        "sklearn", f"SentEval's protocol of transfer. {explain(PROTOCOLS)}.", one_of(PROTOCOLS), only="eval.transfer"
    ),
    "eval.extra": field(
        (),
        "Also scored at the end: stsb_dev and sickr_dev, the development sets of STS-B and SICK-R; geometry, alignment "
        "and uniformity of STS-B (train, dev and test). A sweep sets what its columns need.",
        each_once("score", EXTRA),
        only="eval.data",
    ),
    "eval.against_start": field(
        False,
        "At the end, compare the best checkpoint with the base model, and keep that unless the checkpoint is better: "
        "the 95% interval of its gain, by a paired bootstrap, lies above 0. Of a file of pairs, one half then chooses "
        "the checkpoint and the other compares, or all do where eval.every=0.",
    ),
    "eval.postprocess": field(
        "",
        "The post-processing of the embeddings that are scored at the end; empty: none.",
        empty_or_one_of(POSTPROCESSING),
        only="eval.data",
    ),
    "eval.postprocess_data": field(
        "",
        "The sentences that it is fit on: a source as for data.train (all of its columns); target: for each task "
        "the sentences that it is scored on; or target_all: those of its train, dev and test sets together.",
        only="eval.postprocess",
    ),
    "eval.postprocess_dimensions": field(
        0, "Dimensions that whitening keeps; 0: all.", at_least(0), only="eval.postprocess=whitening"
    ),
    "eval.retrieval.data": field(
        "", "A folder with corpus.jsonl, queries.jsonl and qrels/, or several of them, with commas in between."
    ),
    "eval.retrieval.measures": field(
        USUAL,
        "The measures, NAME@K; the first one chooses the best checkpoint where eval.development=retrieval.",
        nonempty("one or more measures"),
        each_once("measure", MEASURES),
    ),
    "eval.retrieval.split": field(
        "test", "The judgements of the scores at the end: qrels/test.tsv.", one_of(SPLITS), only="eval.retrieval.data"
    ),
    "eval.retrieval.development": field(
        "dev",
        "The judgements that choose the best checkpoint where eval.development=retrieval.",
        one_of(SPLITS),
        only="eval.development=retrieval",
    ),
    "eval.retrieval.documents": field(
        0,
        "Keep so many documents: all that are judged, and others drawn at random; 0: all.",
        at_least(0),
        only="eval.retrieval.data",
    ),
    "eval.retrieval.seed": field(
        0,
        "The seed of that draw.",
        at_least(0),
        only="eval.retrieval.documents",
    ),
    "eval.retrieval.storage": field(
        "float32",
        "The type that the documents' embeddings are rounded to.",
        one_of(STORAGES),
    ),
    "analysis.every": field(
        0, "Steps between measurements; the start and the end are measured too. 0: none.", at_least(0)
    ),
    "analysis.data": field(
        "",
        "A file of sentences, or of graded pairs (their first sentences), or SentEval's data/downstream; "
        "empty: that of eval.data.",
        only="analysis.every",
    ),
    "analysis.split": field(
        "dev",
        "The split of STS-B that is measured, where the data are SentEval's folder.",
        one_of(("dev", "test")),
        only="analysis.every",
    ),
    "analysis.repeated_sentences": field(
        "drop",
        "Whether a sentence that the data repeat is measured as often (keep), or once.",
        one_of(("drop", "keep")),
        only="analysis.every",
    ),
    "analysis.sentences": field(
        256,
        "The number of sentences that are measured, evenly spread over the data.",
        at_least(FEWEST_ANALYSED, "tokens must occur in several"),
        only="analysis.every",
    ),
}
