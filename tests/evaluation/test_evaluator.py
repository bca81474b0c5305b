import numpy as np
from support.data import raises

from simcse_jax.evaluation.evaluator import by_task, encode_once, evaluate_all


class Lengths:
    """A model whose embeddings are the sentences' lengths; it remembers what it was given."""

    def __init__(self, factor: float = 1.0):
        self.factor, self.given = factor, []

    def __call__(self, sentences):
        self.given.append(list(sentences))
        return self.factor * np.array([[len(sentence)] for sentence in sentences], np.float32)


def test_identical_sentences_are_encoded_once_unless_each_task_has_a_model_of_its_own():
    embed = Lengths()
    first, second = encode_once(embed, (["a", "bbb", "a"], ["bbb", "cc"]))
    assert (first[:, 0].tolist(), second[:, 0].tolist()) == ([1, 3, 1], [3, 2])
    assert embed.given == [["a", "bbb", "cc"]]
    raises("embeddings are not finite", encode_once, Lengths(np.inf), (["a"],))
    evaluators = [lambda embed: {"one": embed(["a"])[0, 0]}, lambda embed: {"two": embed(["bb"])[0, 0], "three": 3}]
    assert evaluate_all(Lengths(), evaluators) == {"one": 1, "two": 2, "three": 3}

    def evaluate(embed, tasks):
        sides = encode_once(embed, tasks.values())
        return {task: float(side.sum()) for task, side in zip(tasks, sides, strict=True)}

    tasks, embed = {"x": ["a", "bb"], "y": ["bb"]}, Lengths()
    assert by_task(evaluate, embed, tasks) == {"x": 3, "y": 2}
    assert embed.given == [["a", "bb"]]
    embed.for_task = lambda name, task: Lengths(len(task))
    assert by_task(evaluate, embed, tasks) == {"x": 6, "y": 2}
