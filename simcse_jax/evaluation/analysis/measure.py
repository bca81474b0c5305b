"""All measurements of the isotropy paper for one model, in one pass over the data.

Token embeddings are streamed; kept in addition to the sentences is a sum of normalized embeddings for each type and
layer, (L + 1) × K × D numbers of 8 bytes, and the sampled tokens.
"""

import dataclasses
import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from simcse_jax.errors import UserError
from simcse_jax.evaluation.analysis import isotropy
from simcse_jax.evaluation.analysis.isotropy import informativity
from simcse_jax.evaluation.analysis.tokens import (
    CHUNK,
    FREQUENT,
    Survey,
    TokenChange,
    TokenEncoder,
    Units,
    correlation,
    find_units,
    most_changed,
)
from simcse_jax.evaluation.evaluator import check_finite
from simcse_jax.host.progress import Progress

ModelPair = tuple[str, str]  # the labels of a model and of the one that it was trained from


class Measurement(NamedTuple):
    """Measurements of a model with L layers on K token types; of L + 1 numbers, the first is the embedding layer's."""

    anisotropy: np.ndarray  # (L + 1,)
    self_similarity: np.ndarray  # (L + 1,)
    intra_sentence_similarity: np.ndarray  # (L + 1,)
    l2_norm: np.ndarray  # (L + 1,), of the anisotropy baseline's tokens
    types: np.ndarray  # (L + 1, K), self-similarity of each type, in the survey's order
    dimensions: np.ndarray  # (D,), contributions to self-similarity, last layer
    dimensions_random_pairs: np.ndarray  # (D,), to anisotropy, last layer
    informativity: dict[int, float]  # r² by k, last layer

    def to_json(self) -> dict[str, Any]:
        """`layers`, `dimensions`, `dimensions_random_pairs` and `informativity`."""
        columns = {
            "anisotropy": self.anisotropy,
            "self_similarity": self.self_similarity,
            "intra_sentence_similarity": self.intra_sentence_similarity,
            "l2_norm": self.l2_norm,
            "adjusted_self_similarity": self.self_similarity - self.anisotropy,
            "adjusted_intra_sentence_similarity": self.intra_sentence_similarity - self.anisotropy,
        }
        return {
            "layers": [
                {"layer": layer, **{name: round(float(values[layer]), 6) for name, values in columns.items()}}
                for layer in range(len(self.anisotropy))
            ],
            "dimensions": isotropy.summary(self.dimensions),
            "dimensions_random_pairs": isotropy.summary(self.dimensions_random_pairs),
            "informativity": [{"k": k, "r2": round(r2, 6)} for k, r2 in self.informativity.items()],
        }


def measure(encoder: TokenEncoder, survey: Survey, *, show_progress_bar: bool = False) -> Measurement:
    """Measures one model."""
    sums = _Sums(survey)
    with Progress(len(survey.sentences), shown=show_progress_bar) as bar:
        for start in range(0, len(survey.sentences), CHUNK):
            part = survey.sentences[start : start + CHUNK]
            tokenized, _ = encoder.tokenize(part)
            for row, states in encoder.hidden_states(part):
                sums.add(start + row, find_units(*tokenized[row], survey.protocol), states)
                bar.advance()
    return sums.measurement()


class _Sums:
    """Running sums over embeddings, which are not kept."""

    def __init__(self, survey: Survey):
        self.survey = survey
        self.slots = {row: slot for slot, row in enumerate(survey.sample)}
        self.contexts = np.zeros(len(survey.names), np.int64)
        self.sentences = 0  # with any units
        self.intra: np.ndarray = np.zeros(())
        # Their shapes are those of the first hidden states.
        self.sums: np.ndarray = np.zeros(())
        self.squares: np.ndarray = np.zeros(())
        self.sample: np.ndarray = np.zeros(())

    def add(self, row: int, units: Units, states: np.ndarray) -> None:
        """Takes in the hidden states (L + 1, T or more, D) of a sentence."""
        if not self.sums.ndim:
            layers, _, size = states.shape
            self.sums = np.zeros((layers, len(self.contexts), size))
            self.squares = np.zeros((len(self.contexts), size))  # of the last layer
            self.sample = np.zeros((layers, len(self.slots), size), np.float32)
        if not units.types:
            return
        embeddings = check_finite(unit_embeddings(states, units))
        self.sentences += 1
        self.intra = self.intra + isotropy.intra_sentence_similarity(embeddings)
        if row in self.slots:
            self.sample[:, self.slots[row]] = embeddings[:, self.survey.sample[row]]
        places, numbers = self._contexts(units)
        if not len(places):
            return
        normalized = isotropy.normalize(embeddings[:, places])
        types, inverse = np.unique(numbers, return_inverse=True)
        members = (inverse == np.arange(len(types))[:, None]).astype(np.float64)  # (types, places)
        self.sums[:, types] += members @ normalized
        self.squares[types] += members @ normalized[-1] ** 2
        self.contexts[types] += np.bincount(inverse)

    def _contexts(self, units: Units) -> tuple[np.ndarray, np.ndarray]:
        """The places of the units that count as contexts, and the numbers of their types."""
        numbers = self.survey.numbers
        contexts = [(place, numbers[type_]) for place, type_ in enumerate(units.types) if type_ in numbers]
        if self.survey.protocol.occurrences == "first":
            contexts = [(place, number) for number, place in reversed({n: p for p, n in reversed(contexts)}.items())]
        places, types = np.array(contexts, int).reshape(-1, 2).T
        return places, types

    def measurement(self) -> Measurement:
        """The means of everything that was added."""
        protocol, last = self.survey.protocol, self.sample[-1]
        types = np.asarray(isotropy.self_similarity(self.sums, self.contexts))
        shares = isotropy.self_similarity_pairs(self.sums[-1], self.squares, self.contexts, protocol.contributions)
        random_pairs = isotropy.random_pairs(last)
        # Eq. 6 without the norms is the squared mean: large for dimensions with "high absolute means" (section 2.2).
        products = last.mean(axis=0, dtype=np.float64) ** 2
        ranking = {"products": products, "cosines": random_pairs, "self_similarity": shares}
        pairs = self.contexts * (self.contexts - 1.0)
        return Measurement(
            anisotropy=np.asarray(isotropy.mean_cosine(self.sample)),
            self_similarity=np.average(types, axis=-1, weights=pairs if protocol.average == "pairs" else None),
            intra_sentence_similarity=self.intra / self.sentences,
            l2_norm=np.linalg.norm(self.sample.astype(np.float64), axis=-1).mean(axis=-1),
            types=types,
            dimensions=shares,
            dimensions_random_pairs=random_pairs,
            informativity=informativity(last, ranking[protocol.ranking]),
        )


def unit_embeddings(states: np.ndarray, units: Units) -> np.ndarray:
    """(L + 1, T or more, D) to (L + 1, U, D) float64: a unit of several tokens is their mean."""
    tokens = states[:, units.tokens].astype(np.float64)
    if len(units.starts) == len(units.tokens):
        return tokens
    sizes = np.diff(units.starts, append=len(units.tokens))
    return np.add.reduceat(tokens, units.starts, axis=1) / sizes[:, None]


def collect(
    models: Mapping[str, str],
    pairs: Sequence[ModelPair],
    surveys: Mapping[str, Survey],
    measurements: Mapping[str, Measurement],
    *,
    data: str,
    max_length: int,
) -> dict[str, Any]:
    """The contents of `metrics.json`, as `report.write` takes them.

    Args:
      models: the models' names by their labels, in the order of the report.

    Returns:
      `data`, `sentences` and `protocol`; `models`, a list with the `model`, its `label`, what its tokenizer made of the
      data (`tokens`, `types`, `samples`) and its measurements; `pairs`, a list with the labels `model` and `base` and
      the self-similarity change (eq. 10) of their `tokens`; `correlations`, eq. 11 for every two pairs with enough in
      common, or a warning.
    """
    first = next(iter(surveys.values()))
    described = []
    for label, name in models.items():
        survey = surveys[label]
        size = {"tokens": int(survey.units.sum()), "types": len(survey.names), "samples": len(survey.sample)}
        described.append({"model": name, "label": label, **size, **measurements[label].to_json()})
    changes = {pair: token_changes(surveys[pair[0]], *(measurements[label] for label in pair)) for pair in pairs}
    compared = []
    for (model, base), tokens in changes.items():
        more, less = most_changed(tokens)
        rows = [{**dataclasses.asdict(token), "change": round(token.change, 6)} for token in tokens]
        compared.append({"model": model, "base": base, "tokens": rows})
        compared[-1] |= {"more_contextualized": more, "less_contextualized": less}
    correlations = []
    for pair, other in itertools.combinations(changes, 2):
        try:
            both = correlation(changes[pair], changes[other])
        except UserError as error:  # known after hours of encoding; all else is measured
            warnings.warn(f"{pair[1]} → {pair[0]} and {other[1]} → {other[0]}: {error}", stacklevel=2)
            continue
        by_n = [None if r is None else round(r, 6) for r in both.by_n]
        about = {"pairs": [list(pair), list(other)]}
        correlations.append(about | {"by_n": by_n, "best_n": both.best_n, "best": round(both.best, 6)})
    return {
        "data": data,
        "sentences": len(first.sentences),
        "protocol": dataclasses.asdict(first.protocol) | {"max_length": max_length},
        "models": described,
        "pairs": compared,
        "correlations": correlations,
    }


def token_changes(survey: Survey, tuned: Measurement, base: Measurement) -> list[TokenChange]:
    """ssc = (ss_f − ani_f) − (ss_v − ani_v), eq. 10, last layers, of the `FREQUENT` tokens, the most frequent first.

    Args:
      survey: of the fine-tuned model f; the base model v must have the same tokens.
    """
    changes = (tuned.types[-1] - tuned.anisotropy[-1]) - (base.types[-1] - base.anisotropy[-1])
    rows = zip(survey.names, survey.counts.tolist(), changes.tolist(), survey.special.tolist(), strict=True)
    return [TokenChange(*row) for row in list(rows)[:FREQUENT]]
