"""Scores a run's model between steps, and chooses which of two encoders stands for it."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.devices import processes
from simcse_jax.encoding.embedder import Embedder
from simcse_jax.evaluation.evaluator import evaluate_all
from simcse_jax.models.parameters import Arrays, Params
from simcse_jax.training.dropout_pairs import Pairs
from simcse_jax.training.setup import Setup


@dataclasses.dataclass(frozen=True)
class ProgressEncoder:
    """A model for evaluators, which shows its progress."""

    embedder: Embedder
    pairs: Callable[[Arrays], Pairs] | None = None  # see `Setup.pairs`

    def __call__(self, sentences: Sequence[str]) -> np.ndarray:
        """(N, D) embeddings of N sentences."""
        return self.embedder.with_progress(sentences, processes.is_first())

    @property
    def tokens(self) -> Embedder:
        """The token embeddings of the last layer."""
        return dataclasses.replace(self.embedder, last_only=True)

    def under_dropout(self) -> Pairs | None:
        """The measured sentences as both sides of the pairs that the run trains on, if these are themselves."""
        return self.pairs and self.pairs(self.embedder.params)


class ChosenTower(NamedTuple):
    """The encoder of a run that stands for its model, and its scores; {} where none were due."""

    model: ProgressEncoder
    tower: int
    scores: dict[str, Any]
    which: dict[str, int]  # of two encoders, for the metrics


def choose(setup: Setup, params: Params, score: bool) -> ChosenTower:
    """Chooses the encoder with the better score, if one is due; the anchors' if scores are equal or missing.

    `params` are those of `Setup.gather_for_scoring`.
    """
    models = [setup.model(params, tower) for tower in setup.towers]
    judged = [ProgressEncoder(setup.judge.with_params(model)) for model in models] if score and setup.scoring else []
    scores = [evaluate_all(model, setup.scoring) for model in judged]
    tower = max(range(len(scores)), key=lambda tower: next(iter(scores[tower].values())), default=0)
    which = {"second_encoder": tower} if models[1:] else {}
    chosen = ProgressEncoder(setup.embed.with_params(models[tower]), setup.pairs)
    return ChosenTower(chosen, tower, scores[tower] if scores else {}, which)
