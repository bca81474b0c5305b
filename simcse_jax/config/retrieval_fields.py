"""The fields of retrieval tasks, and which of them go together with others."""

from simcse_jax.choices import MEASURES, RETRIEVAL, STORAGES, USUAL
from simcse_jax.config.sections import Config
from simcse_jax.errors import UserError
from simcse_jax.field import at_least, each_once, field, nonempty, one_of

RETRIEVAL_SECTIONS = {"eval.retrieval": "Scores of retrieval (docs/guides/evaluate.md)."}
SPLITS = ("train", "dev", "test")

RETRIEVAL_FIELDS = {
    "eval.retrieval.data": field(
        "", "A folder with corpus.jsonl, queries.jsonl and qrels/, or several of them, with commas in between."
    ),
    "eval.retrieval.measures": field(
        USUAL,
        "The measures, NAME@K; the first one chooses the best checkpoint where eval.development=retrieval.",
        nonempty("one or more measures"),
        each_once("measure", MEASURES),
        only=lambda config: config.eval.retrieval.data or config.data.held_out,
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
        only=lambda config: config.eval.retrieval.data and config.eval.retrieval.documents,
    ),
    "eval.retrieval.storage": field(
        "float32",
        "The type that the documents' embeddings are rounded to.",
        one_of(STORAGES),
        only=lambda config: config.eval.retrieval.data or config.data.held_out,
    ),
}


def check_retrieval(config: Config) -> None:
    """Refuses a choice by retrieval without its data, and data without a choice."""
    evaluation = config.eval
    if not evaluation.retrieval.data:
        if evaluation.development == RETRIEVAL:
            raise UserError("config.eval.retrieval.data: must be set for eval.development=retrieval, a folder")
        return
    if not evaluation.data and evaluation.development != RETRIEVAL:
        raise UserError(
            f"config.eval.development={evaluation.development!r}: eval.data is empty, so nothing would choose the best "
            "checkpoint; set it to retrieval"
        )
    if evaluation.postprocess:
        raise UserError(
            f"config.eval.postprocess={evaluation.postprocess!r}: is for similarity and transfer; leave it empty, or "
            "eval.retrieval.data"
        )
