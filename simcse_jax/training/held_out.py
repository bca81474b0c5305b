"""The rows of a run that judge it: held out of its training data (`data.held_out`), or in folds (`data.folds`)."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float32, Int

from simcse_jax.data.batches import Corpus
from simcse_jax.data.corpora import AnyCorpus
from simcse_jax.data.held_out import FEWEST, Split, hold_out, in_folds
from simcse_jax.data.sources import Examples
from simcse_jax.errors import UserError, option
from simcse_jax.evaluation import beir, retrieval, sts, transfer
from simcse_jax.evaluation.transfer_files import Task
from simcse_jax.training.evaluation import Evaluation, with_prompts

NAME = "held_out"  # of the task
MOST_DOCUMENTS = 10_000  # texts that the held-out pairs are found among
MOST_FITTED = 5_000  # rows that a classifier is fitted to

Judge = sts.Similarity | retrieval.Retrieval | transfer.Transfer


class HeldOutSpec(NamedTuple):
    """The rows that are held out."""

    rows: int  # how many
    data: str  # their name
    seed: int
    chooses: bool  # half of them choose the best checkpoint


class FoldsSpec(NamedTuple):
    """How the rows are split."""

    folds: int
    data: str  # the name of the rows
    seed: int


class Folds(NamedTuple):
    """The rows of a run in folds."""

    of: Int[np.ndarray, " N"]  # the fold of each row
    evaluators: tuple[Judge, ...]  # each scores a fold's rows

    def with_prompts(self, prompts: Mapping[str, str], usual: str) -> "Folds":
        """These folds with prompts; see `evaluation.with_prompts`."""
        return self._replace(evaluators=tuple(with_prompts(each, prompts, usual) for each in self.evaluators))

    def others(self, corpus: AnyCorpus) -> list[Corpus]:
        """For each fold all other rows of the corpus."""
        assert isinstance(corpus, Corpus)  # the fields are checked together
        return [corpus.only(np.flatnonzero(self.of != number)) for number in range(len(self.evaluators))]


class HeldOut(NamedTuple):
    """The rows to train on, and the evaluation on the others."""

    examples: Examples
    evaluation: Evaluation


def hold_out_rows(
    examples: Examples, spec: HeldOutSpec, fields: retrieval.RetrievalSpec, devices: Sequence[jax.Device] | None = None
) -> HeldOut:
    """Holds rows out: half of them choose the best checkpoint, half are the test set; all are if nothing is chosen.

    `judges` says how.
    """
    field = f"config.data.held_out={spec.rows}"
    check_scorable(examples, field, spec.data)
    split = split_rows(spec, examples)
    if why := obstacle(spec, examples, split):
        raise UserError(f"{field}: {why}. Name pairs to score on ({option('eval', 'FILE')}), or set data.held_out=0")
    rest, *parts = (examples.take(rows) for rows in split[:3])
    development, test = judges(parts, fields, devices, rest)
    chooses: sts.Correlation | retrieval.Ranking | transfer.Accuracy
    if isinstance(development, sts.Similarity):
        chooses = sts.Correlation(f"eval/{NAME}", development.tasks)
    elif isinstance(development, transfer.Transfer):
        chooses = transfer.Accuracy(f"eval/{NAME}_accuracy", development.tasks)
    else:
        first = fields.measures[0]
        chooses = retrieval.Ranking(f"eval/{NAME}_{first}", dataclasses.replace(development, measures=[first]))
    return HeldOut(rest, Evaluation(chooses, [test], True, None))


def judges(
    parts: Sequence[Examples],
    fields: retrieval.RetrievalSpec,
    devices: Sequence[jax.Device] | None = None,
    rest: Examples | None = None,
) -> list[Judge]:
    """What scores a model on each of these parts of the rows.

    Pairs with scores are compared by Spearman's correlation. Sentences with classes are classified by a logistic
    regression on embeddings, fitted to the `rest` (None: the other parts), at most `MOST_FITTED` of it. Of other pairs,
    each anchor is a query, whose positives are to be found among all texts that are not anchors: the positives and hard
    negatives of all rows, at most `MOST_DOCUMENTS`.
    """
    if parts[0].scores is not None:
        return [sts.Similarity({NAME: as_graded_pairs(part)}) for part in parts]
    if len(parts[0].columns) == 1:
        others = [[other for other in parts if other is not part] if rest is None else [rest] for part in parts]
        return [transfer.Transfer({NAME: as_task(*pair)}) for pair in zip(parts, others, strict=True)]
    documents = list_documents(parts, [] if rest is None else [rest])
    tasks = [{NAME: as_collection(part, documents)} for part in parts]
    return [retrieval.Retrieval(task, fields.measures, fields.storage, devices) for task in tasks]


def check_scorable(examples: Examples, field: str, data: str) -> None:
    """Refuses sentences that have neither positives nor classes."""
    if len(examples.columns) < 2 and examples.labels is None:
        raise UserError(f"{field}: {data} has sentences without positives, which cannot be scored; set it to 0")


def as_task(judged: Examples, others: Sequence[Examples]) -> Task:
    """Sentences to be classified after others, of which a part evenly spread over their order is taken."""
    texts, labels = [text for part in others for text in part.columns[0]], np.concatenate([p.labels for p in others])
    rows = np.unique(np.linspace(0, len(texts) - 1, min(len(texts), MOST_FITTED)).astype(np.int64))
    texts, labels = [texts[row] for row in rows.tolist()], labels[rows]
    splits = {"train": slice(0, len(texts)), "test": slice(len(texts), None)}
    labels = np.concatenate([labels, judged.labels])
    return Task([*texts, *judged.columns[0]], [], labels, splits, int(labels.max()) + 1)


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
    where, parts = " in each half" * spec.chooses, [split.development, split.test]
    names = f"among those held out{where}", f"that are held out{where}"
    return _why_not(spec.data, split.groups, examples.scores, parts, *names)


def _why_not(
    data: str,
    groups: Int[np.ndarray, " N"],
    scores: Float32[np.ndarray, " N"] | None,
    parts: Sequence[Int[np.ndarray, " _"]],
    among: str,
    of_part: str,
) -> str:
    """Why one of these parts of the rows could not judge, as text; the last two name a part in sentences."""
    fewest = min(len(np.unique(groups[rows])) for rows in parts)
    if fewest < FEWEST:
        stay = f"its {len(groups):,} rows stay together where they share an anchor or a positive"
        return f"{data}: {stay}: {groups.max() + 1:,} groups in all, {fewest} {among}; {FEWEST} are needed"
    for part in () if scores is None else (scores[rows] for rows in parts):
        if np.ptp(part) == 0:
            return f"{data}: all scores {of_part} are {part[0]:g}: no correlation"
    return ""


def as_graded_pairs(examples: Examples) -> sts.Pairs:
    """Pairs with scores."""
    assert examples.scores is not None
    first, second = ([" ".join(text.split()) for text in column] for column in examples.columns[:2])
    return sts.Pairs(first, second, examples.scores.astype(np.float64), {})


def list_documents(judged: Sequence[Examples], others: Sequence[Examples] = ()) -> list[str]:
    """The distinct texts of all columns but the anchors', at most `MOST_DOCUMENTS`, but all positives that are judged.

    These come first.
    """
    documents = dict.fromkeys(text for part in judged for text in part.columns[1])
    for text in (text for part in (*judged, *others) for column in part.columns[1:] for text in column if text):
        if len(documents) >= MOST_DOCUMENTS:
            break
        documents[text] = None
    return [*documents]


def as_collection(examples: Examples, documents: Sequence[str]) -> beir.Collection:
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


def split_examples(
    examples: Examples, spec: FoldsSpec, fields: retrieval.RetrievalSpec, devices: Sequence[jax.Device] | None = None
) -> Folds:
    """Splits rows that share no anchor and no positive into folds, which are scored as rows held out are.

    Queries of all folds search the same documents: those of all rows, at most `held_out.MOST_DOCUMENTS`.

    Raises:
      UserError: for sentences alone, too few groups of rows, and scores that are all the same.
    """
    field = f"config.data.folds={spec.folds}"
    check_scorable(examples, field, spec.data)
    of, groups = in_folds(examples.columns[:2], spec.folds, spec.seed)
    if why := obstacle_to_folds(of, groups, examples.scores, spec):
        raise UserError(f"{field}: {why}. Set it to 0, or bring more rows")
    parts = [examples.take(np.flatnonzero(of == number)) for number in range(spec.folds)]
    return Folds(of, tuple(judges(parts, fields._replace(measures=fields.measures[:1]), devices)))


def obstacle_to_folds(
    of: Int[np.ndarray, " N"],
    groups: Int[np.ndarray, " N"],
    scores: Float32[np.ndarray, " N"] | None,
    spec: FoldsSpec,
) -> str:
    """Why these folds could not judge anything, as text; "" if they can."""
    parts = [np.flatnonzero(of == number) for number in range(spec.folds)]
    return _why_not(spec.data, groups, scores, parts, "in a fold", "of a fold")
