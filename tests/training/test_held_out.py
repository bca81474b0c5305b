import numpy as np
import pytest

from simcse_jax.data.batches import Corpus
from simcse_jax.data.sources import Examples
from simcse_jax.errors import UserError
from simcse_jax.evaluation.retrieval import RetrievalSpec
from simcse_jax.training.held_out import FoldsSpec, HeldOutSpec, hold_out_rows, split_examples

ANCHORS, POSITIVES, NEGATIVES = ([f"{name} {row}" for row in range(100)] for name in ("anchor", "positive", "negative"))


def held_out(columns, count=40, scores=None, chooses=True):
    spec = HeldOutSpec(count, "pairs.csv", seed=42, chooses=chooses)
    return hold_out_rows(Examples(columns, 0, scores=scores), spec, RetrievalSpec())


def test_pairs_are_found_among_the_texts_of_all_rows():
    examples, evaluation = held_out((ANCHORS, POSITIVES, NEGATIVES))
    assert len(examples) == 60 and evaluation.has_tests
    (collection,) = evaluation.final[0].tasks.values()
    assert len(collection.first) == 20 and len(collection.second) == 200
    assert not {*collection.first} & {*examples.columns[0]}
    for query, row, relevance in collection.judged:
        assert collection.second[row].split()[1] == collection.first[query].split()[1] and relevance == 1
        assert collection.second[row].startswith("positive")
    (chosen_by,) = evaluation.development.tasks.values()
    assert evaluation.development.name == "eval/held_out_ndcg@10" and len(chosen_by.first) == 20
    assert not {*collection.first} & {*chosen_by.first}
    # Rows may share hard negatives, also with other rows' answers.
    examples, evaluation = held_out((ANCHORS, POSITIVES, [POSITIVES[0]] * 50 + POSITIVES[:50]))
    assert len(examples) == 60 and len(evaluation.final[0].tasks["held_out"].first) == 20


def test_an_anchor_in_several_rows_is_one_query():
    examples, evaluation = held_out(([anchor for anchor in ANCHORS[:50] for _ in range(2)], POSITIVES))
    (collection,) = evaluation.final[0].tasks.values()
    assert len(collection.first) == 10 and collection.relevant.tolist() == [2] * 10 and len(examples) == 60
    with pytest.raises(UserError, match=r"data\.held_out=40: .*: 20 groups in all, 4 among"):
        held_out(([anchor for anchor in ANCHORS[:20] for _ in range(5)], POSITIVES))


def test_a_query_s_own_text_is_an_answer_only_if_it_is_judged():
    """Pairs in both directions, of which a model ranks the other one first; and equal texts, as of a title."""
    identity = np.eye(100, dtype=np.float32)
    for columns, count in ((([*ANCHORS, *POSITIVES], [*POSITIVES, *ANCHORS]), 80), ((POSITIVES, POSITIVES), 40)):
        examples, evaluation = held_out(columns, count=count)
        numbers = evaluation.final[0](lambda texts: identity[[int(text.split()[1]) for text in texts]])
        assert numbers["retrieval_average"]["ndcg@10"] == 100 and len(examples) == len(columns[0]) - count


def test_where_nothing_is_chosen_all_rows_compare_and_all_positives_are_among_the_documents(monkeypatch):
    examples, evaluation = held_out((ANCHORS, POSITIVES), chooses=False)
    (chosen_by,), (collection,) = evaluation.development.tasks.values(), evaluation.final[0].tasks.values()
    assert len(examples) == 60 and len(collection.first) == 40 and collection.first == chosen_by.first
    monkeypatch.setattr("simcse_jax.training.held_out.MOST_DOCUMENTS", 20)
    (collection,) = held_out((ANCHORS, POSITIVES, NEGATIVES))[1].final[0].tasks.values()
    assert len(collection.second) == 40 and collection.relevant.tolist() == [1] * 20


def test_pairs_with_scores_are_correlated():
    scores = np.arange(100, dtype=np.float32)
    _, evaluation = held_out((ANCHORS, POSITIVES), scores=scores)
    (pairs,) = evaluation.final[0].tasks.values()
    assert [float(first.split()[1]) for first in pairs.first] == pairs.gold.tolist() and len(pairs.gold) == 20
    assert evaluation.development.name == "eval/held_out"


def test_rows_that_can_judge_nothing_are_refused():
    for columns, scores, named in (
        ((ANCHORS,), None, "data.held_out=40: pairs.csv has sentences without positives"),
        ((["the same"] * 100, POSITIVES), None, "data.held_out=40: .*: 1 groups in all, 0 among"),
        ((ANCHORS, POSITIVES), np.ones(100, np.float32), "data.held_out=40: .* are 1"),
    ):
        with pytest.raises(UserError, match=named):
            held_out(columns, scores=scores)


def folds(columns, scores=None, count=5):
    examples = Examples(columns, 0, scores=scores)
    return examples, split_examples(examples, FoldsSpec(count, "pairs.csv", seed=42), RetrievalSpec())


def test_no_fold_is_scored_on_what_its_model_was_trained_on():
    anchors = [ANCHORS[row - row % 2] for row in range(100)]  # two rows each
    _, split = folds((anchors, POSITIVES, NEGATIVES))
    ids = np.arange(300).reshape(100, 3, 1).astype(np.int32)
    parts = split.others(Corpus(ids, np.ones_like(ids, np.int8), scores=np.arange(100, dtype=np.float32)))
    documents = set()
    for part, evaluator in zip(parts, split.evaluators, strict=True):
        (task,) = evaluator.tasks.values()
        trained = part.scores.astype(int)
        assert not {*task.first} & {anchors[row] for row in trained} and len(trained) + 2 * len(task.first) == 100
        assert part.input_ids[:, 0, 0].tolist() == (3 * trained).tolist()
        assert {task.first[query] for query, _, _ in task.judged} == {*task.first}
        documents.add(tuple(task.second))
    assert len(documents) == 1 and len(*documents) == 200  # all folds search the same
    scores = np.arange(100, dtype=np.float32)
    _, split = folds((ANCHORS, POSITIVES), scores)
    assert sorted(np.concatenate([e.tasks["held_out"].gold for e in split.evaluators]).tolist()) == scores.tolist()


def test_folds_that_can_judge_nothing_are_refused():
    for columns, scores, named in (
        ((ANCHORS,), None, "data.folds=5: pairs.csv has sentences without positives"),
        ((["the same"] * 100, POSITIVES), None, "data.folds=5: .*: 1 groups in all, 0 in a fold; 10 are needed"),
        ((ANCHORS[:40], POSITIVES[:40]), None, "data.folds=5: .*: 40 groups in all, 8 in a fold; 10 are needed"),
        # Most rows share an anchor, and fill a fold alone.
        ((["the same"] * 50 + ANCHORS[50:], POSITIVES), None, "data.folds=5: .*: 51 groups in all, 1 in a fold"),
        ((ANCHORS, POSITIVES), np.ones(100, np.float32), "data.folds=5: .* all scores of a fold are 1"),
    ):
        with pytest.raises(UserError, match=named):
            folds(columns, scores)


def test_sentences_with_classes_are_classified_after_the_rows_that_do_not_judge(monkeypatch):
    """Equal sentences are in one fold, even with different classes."""
    texts, classes = [*ANCHORS[:90], *ANCHORS[:10]], np.arange(100) // 34
    examples = Examples((texts,), 0, labels=classes)

    def parts(task, texts=ANCHORS):
        sides = [{*task.first[task.splits[name]]} for name in ("train", "test")]
        assert not sides[0] & sides[1] and task.classes == 3
        assert {*zip(task.first, task.labels, strict=True)} <= {*zip(texts, classes, strict=True)}
        return [len(task.first[task.splits[name]]) for name in ("train", "test")]

    folds = split_examples(examples, FoldsSpec(5, "texts.csv", 42), RetrievalSpec())
    assert [parts(each.tasks["held_out"], texts) for each in folds.evaluators] == [[80, 20]] * 5

    def embed(sentences):
        return np.eye(3, dtype=np.float32)[[classes[ANCHORS.index(text)] for text in sentences]]

    spec = HeldOutSpec(40, "texts.csv", seed=42, chooses=True)
    held = hold_out_rows(Examples((ANCHORS,), 0, labels=classes), spec, RetrievalSpec())
    chooses, (test,) = held.evaluation.development, held.evaluation.final
    assert parts(chooses.tasks["held_out"]) == parts(test.tasks["held_out"]) == [60, 20]
    assert chooses(embed) == {"eval/held_out_accuracy": 100} and test(embed)["transfer_average"] == 100
    assert "held_out" in test.table(test(embed)) and chooses.fingerprint != ""
    monkeypatch.setattr("simcse_jax.training.held_out.MOST_FITTED", 30)
    test = hold_out_rows(Examples((ANCHORS,), 0, labels=classes), spec, RetrievalSpec()).evaluation.final[0]
    assert parts(test.tasks["held_out"]) == [30, 20]
