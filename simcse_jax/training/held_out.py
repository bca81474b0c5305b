"""The evaluation of a run on rows held out of its training data (`data.held_out`)."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from simcse_jax.data.held_out import FEWEST, Split, hold_out
from simcse_jax.data.sources import Examples
from simcse_jax.errors import UserError, option
from simcse_jax.evaluation import beir, retrieval, sts
from simcse_jax.training.evaluation import Evaluation

NAME = "held_out"  # of the task
MOST_DOCUMENTS = 10_000  # texts that the held-out pairs are found among


class HeldOutSpec(NamedTuple):
    """The rows that are held out."""

    rows: int  # how many
    data: str  # their name
    seed: int
    chooses: bool  # half of them choose the best checkpoint


class HeldOut(NamedTuple):
    """The rows to train on, and the evaluation on the others."""

    examples: Examples
    evaluation: Evaluation


def hold_out_rows(
    examples: Examples, spec: HeldOutSpec, fields: retrieval.RetrievalSpec, devices: Sequence[jax.Device] | None = None
) -> HeldOut:
    """Holds rows out: half of them choose the best checkpoint, half are the test set; all are if nothing is chosen.

    Pairs with scores are compared by Spearman's correlation. Of other pairs, each anchor is a query, whose positives
    are to be found among all texts that are not anchors: the positives and hard negatives of all rows, at most
    `MOST_DOCUMENTS`.
    """
    field = f"config.data.held_out={spec.rows}"
    if len(examples.columns) < 2:
        raise UserError(f"{field}: {spec.data} has sentences without positives, which cannot be scored; set eval.data")
    split = split_rows(spec, examples)
    if why := obstacle(spec, examples, split):
        raise UserError(f"{field}: {why}. Name pairs to score on ({option('eval', 'FILE')}), or set data.held_out=0")
    rest, development, test = (examples.take(rows) for rows in split[:3])
    if examples.scores is not None:
        graded = [{NAME: _graded(part)} for part in (development, test)]
        chooses = sts.Correlation(f"eval/{NAME}", graded[0])
        return HeldOut(rest, Evaluation(chooses, [sts.Similarity(graded[1])], True, None))
    documents = _documents([development, test, rest])
    tasks = [{NAME: _collection(part, documents)} for part in (development, test)]
    first = fields.measures[0]
    ranking = retrieval.Ranking(f"eval/{NAME}_{first}", retrieval.Retrieval(tasks[0], [first], fields.storage, devices))
    final = retrieval.Retrieval(tasks[1], fields.measures, fields.storage, devices)
    return HeldOut(rest, Evaluation(ranking, [final], True, None))


def split_rows(spec: HeldOutSpec, examples: Examples) -> Split:
    """The rows that are held out: all for both uses if nothing is chosen.

    Rows with an anchor or a positive in common stay together; hard negatives may be another row's, in any part.
    """
    split = hold_out(examples.columns[:2], spec.rows, spec.seed)
    if spec.chooses:
        return split
    both = np.sort(np.concatenate([split.development, split.test]))
    return split._replace(development=both, test=both)


def obstacle(spec: HeldOutSpec, examples: Examples, split: Split) -> str:
    """Why rows cannot be held out, as text; "" if they can."""
    parts = (split.development, split.test)
    where, fewest = " in each half" * spec.chooses, min(map(split.independent, parts))
    if fewest < FEWEST:
        groups = f"{split.groups.max() + 1:,} groups in all, {fewest} among those held out{where}; {FEWEST} are needed"
        why = f"its {len(examples):,} rows stay together where they share an anchor or a positive"
        return f"{spec.data}: {why}: {groups}"
    for scores in () if examples.scores is None else (examples.scores[rows] for rows in parts):
        if np.ptp(scores) == 0:
            return f"{spec.data}: all scores that are held out{where} are {scores[0]:g}: no correlation"
    return ""


def _graded(examples: Examples) -> sts.Pairs:
    assert examples.scores is not None
    first, second = ([" ".join(text.split()) for text in column] for column in examples.columns[:2])
    return sts.Pairs(first, second, examples.scores.astype(np.float64), {})


def _documents(parts: Sequence[Examples]) -> list[str]:
    """The distinct texts of all columns but the anchors', the positives of the first two parts first."""
    documents = dict.fromkeys(text for part in parts[:2] for text in part.columns[1])
    for text in (text for part in parts for column in part.columns[1:] for text in column if text):
        if len(documents) >= MOST_DOCUMENTS:
            break
        documents[text] = None
    return [*documents]


def _collection(examples: Examples, documents: Sequence[str]) -> beir.Collection:
    """The anchors as queries, each with its positives as the relevant ones among the documents."""
    row = {text: f"{number:09}" for number, text in enumerate(documents)}
    queries = {text: f"q{number}" for number, text in enumerate(dict.fromkeys(examples.columns[0]))}
    pairs = zip(*examples.columns[:2], strict=True)
    judgements = {(queries[anchor], row[positive]): 1 for anchor, positive in pairs}
    ids = {name: text for text, name in reversed(row.items())}
    collection = beir.collect({name: text for text, name in queries.items()}, ids, judgements, len(documents))
    places = {text: place for place, text in enumerate(collection.second)}
    own_places = [
        -1 if (queries[text], row.get(text)) in judgements else places.get(text, -1) for text in collection.first
    ]
    return dataclasses.replace(collection, same_ids=np.array(own_places))  # unless it is judged, no answer
