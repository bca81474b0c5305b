"""Evaluators measure a model's embeddings and return named numbers. They know nothing of models or runs.

`training`, `evaluate` and sweeps take a list of them. To add one, write a file with a callable that holds its data, and
a line in `training/evaluation.py` or `commands/evaluate.py` that puts it into the list.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float

from simcse_jax.errors import UserError
from simcse_jax.host.progress import doing

Encode = Callable[[Sequence[str]], Float[np.ndarray, "N D"]]  # embeddings of N sentences


@runtime_checkable
class Embed(Protocol):
    """A model for an evaluator: `embed(sentences)`, and `embed.tokens` for evaluators of token embeddings.

    A post-processing that is fit on each task also has `embed.for_task(name, task)` (`evaluation.postprocess`).
    """

    def __call__(self, sentences: Sequence[str], /) -> Float[np.ndarray, "N D"]:
        """(N, D) embeddings of N sentences."""


@runtime_checkable
class Retriever(Embed, Protocol):
    """A model that may have one prompt for queries and another for documents, as the class SimCSE."""

    @property
    def similarity_fn_name(self) -> str:
        """How it compares embeddings, one of `models.config.SIMILARITIES`."""

    def encode_query(self, sentences: Sequence[str], /) -> Float[np.ndarray, "N D"]:
        """(N, D) embeddings of N queries."""

    def encode_document(self, sentences: Sequence[str], /) -> Float[np.ndarray, "N D"]:
        """(N, D) embeddings of N documents."""


Model = TypeVar("Model", bound=Embed)
Wanted = TypeVar("Wanted", bound=Embed, contravariant=True)


@runtime_checkable
class Evaluator(Protocol[Wanted]):
    """Scores a model on data that was read before. It may need more of a model than `Embed`."""

    def __call__(self, embed: Wanted, /) -> dict[str, Any]:
        """Numbers by name; the numbers of a task are a dictionary."""


def evaluate_all(embed: Model, evaluators: Iterable[Evaluator[Model]]) -> dict[str, Any]:
    """The numbers of all evaluators."""
    return {name: number for evaluator in evaluators for name, number in evaluator(embed).items()}


def by_task(evaluate: Callable[[Embed, dict], dict[str, Any]], embed: Embed, tasks: Mapping[str, Any]) -> dict:
    """`evaluate(embed, tasks)`, with all tasks together, or one after the other if `embed` differs between tasks."""
    for_task = getattr(embed, "for_task", None)
    if for_task is None:
        with doing(" … ".join(dict.fromkeys([*tasks][:1] + [*tasks][-1:]))):  # "STS12 … SICKRelatedness"
            return evaluate(embed, dict(tasks))
    results: dict[str, Any] = {}
    for name, task in with_titles(tasks):
        results |= evaluate(for_task(name, task), {name: task})
    return results


def with_titles(tasks: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The tasks one after the other, each with its name as the title of its progress: "MR (1 of 7)"."""
    for number, (name, task) in enumerate(tasks.items(), 1):
        with doing(f"{name} ({number} of {len(tasks)})" if len(tasks) > 1 else name):
            yield name, task


def encode_once(encode: Encode, sides: Iterable[Sequence[str]]) -> list[Float[np.ndarray, "_ D"]]:
    """The embeddings (P, D) of each of several lists of sentences; identical sentences are encoded once."""
    sides = list(sides)
    sentences = list(dict.fromkeys(sentence for side in sides for sentence in side))
    embeddings = check_finite(encode(sentences))
    row = {sentence: number for number, sentence in enumerate(sentences)}
    return [embeddings[[row[sentence] for sentence in side]] for side in sides]


def check_finite(embeddings: np.ndarray) -> np.ndarray:
    """The embeddings, of which none may be NaN or infinite."""
    if not np.all(np.isfinite(embeddings)):
        raise UserError("the model's embeddings are not finite; it cannot be measured")
    return embeddings


def pair_features(first: Float[np.ndarray, "P D"], second: Float[np.ndarray, "P D"]) -> Float[np.ndarray, "P 2*D"]:
    """[|u - v|; u ⊙ v], SentEval's inputs of a classifier of pairs."""
    return np.concatenate([np.abs(first - second), first * second], axis=1)
