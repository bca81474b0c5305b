import numpy as np
import pytest

from simcse_jax.errors import UserError
from simcse_jax.evaluation.evaluator import by_task, encode_once, evaluate_all


def lengths(sentences):
    return np.array([[len(sentence)] for sentence in sentences], np.float32)


def total(embed, tasks):
    return {name: float(embed(sentences).sum()) for name, sentences in tasks.items()}


TASKS = {"one": ["a", "bb"], "other": ["ccc"]}


def test_tasks_are_scored_together_where_they_share_an_embed():
    asked = []

    def evaluate(embed, tasks):
        asked.append(list(tasks))
        return total(embed, tasks)

    assert by_task(evaluate, lengths, TASKS) == {"one": 3.0, "other": 3.0} and asked == [["one", "other"]]


def test_each_task_may_have_an_embed_of_its_own():
    class PerTask:
        def __call__(self, sentences):
            raise AssertionError("each task has its own")

        def for_task(self, task):
            return lambda sentences: lengths(sentences) * len(task)

    assert by_task(total, PerTask(), TASKS) == {"one": 6.0, "other": 3.0}


def test_an_evaluator_is_a_callable_that_gives_numbers():
    evaluators = [lambda embed: total(embed, TASKS), lambda embed: {"most": float(embed(["dddd"]).max())}]
    assert evaluate_all(lengths, evaluators) == {"one": 3.0, "other": 3.0, "most": 4.0}
    assert evaluate_all(lengths, []) == {}


def test_sentences_that_are_the_same_are_encoded_once():
    asked = []

    def embed(sentences):
        asked.extend(sentences)
        return lengths(sentences)

    sides = encode_once(embed, [["a", "bb"], ["bb", "a"]])
    assert asked == ["a", "bb"]
    np.testing.assert_array_equal(sides, [[[1], [2]], [[2], [1]]])


def test_what_is_not_finite_cannot_be_scored():
    with pytest.raises(UserError, match="not finite"):
        encode_once(lambda sentences: lengths(sentences) * np.nan, [["a"]])
