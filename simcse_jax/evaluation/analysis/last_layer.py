"""The last layer in a few numbers, cheap enough to measure during training: of tokens, and of sentences."""

import hashlib
import json
from typing import Any, NamedTuple, runtime_checkable
from typing import Protocol as Interface

import numpy as np

from simcse_jax.evaluation import geometry, sts
from simcse_jax.evaluation.analysis import spectrum
from simcse_jax.evaluation.analysis.inputs import evenly
from simcse_jax.evaluation.analysis.measure import measure
from simcse_jax.evaluation.analysis.tokens import Survey, TokenEncoder
from simcse_jax.evaluation.evaluator import Embed, Encode


@runtime_checkable
class EmbedWithLayers(Embed, Interface):
    """A model: sentences to embeddings, and to the hidden states of layers."""

    @property
    def tokens(self) -> TokenEncoder:
        """The hidden states of layers."""

    def under_dropout(self) -> spectrum.Positives | None:
        """The sample's sentences under two masks each, as an unsupervised run trains on them; None in other runs."""


class Sample(NamedTuple):
    """The data that is measured."""

    sentences: list[str]  # N, for all but alignment
    positives: list[tuple[str, str]]  # P pairs of sentences of the same meaning, for alignment; there may be none

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all of it."""
        texts = [self.sentences, [text for pair in self.positives for text in pair]]
        return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


def positives(pairs: sts.Pairs, count: int) -> list[tuple[str, str]]:
    """At most `count` of the pairs that are rated above 4 of 5, spread evenly; none where the scale is another one."""
    if pairs.gold.min() < 0 or pairs.gold.max() > geometry.TOP:
        return []
    rows = np.flatnonzero(pairs.gold > geometry.POSITIVE)
    return [(pairs.first[row], pairs.second[row]) for row in evenly(rows.tolist(), count)]


class Measured(NamedTuple):
    """The measurements of one model."""

    analysis: dict[str, float]  # the numbers, by name
    singular_values: list[float]  # of the sentence embeddings, falling from 1


class LastLayer(NamedTuple):
    """An evaluator, of the names of what `measure_last_layer` returns."""

    survey: Survey  # of the sample's sentences, by the model's tokenizer
    sample: Sample
    temperature: float | None  # of the objective

    def __call__(self, embed: EmbedWithLayers) -> dict[str, Any]:
        """The numbers of one model."""
        return measure_last_layer(embed, embed.tokens, *self, embed.under_dropout())._asdict()


def measure_last_layer(
    encode: Encode,
    tokens: TokenEncoder,
    survey: Survey,
    sample: Sample,
    temperature: float | None = None,
    under_dropout: tuple[spectrum.Rows, spectrum.Rows] | None = None,
    *,
    show_progress_bar: bool = False,
) -> Measured:
    """Measures one model.

    Args:
      tokens: sentences to the hidden states of layers, of which the last one counts.
      survey: of the sample's sentences, by the model's tokenizer.
      temperature: of the objective; None: it has none.
      under_dropout: the sample's sentences under two masks each, as the run trains on them; None: it does not.

    Returns:
      The measures of tokens as in `metrics.json`, `alignment` where there are positives, `uniformity`, and those of
      `spectrum.measure`.
    """
    sides = [list(side) for side in zip(*sample.positives, strict=True)] or [[], []]
    embeddings = encode([*sample.sentences, *sides[0], *sides[1]])
    measures = measure(tokens, survey, show_progress_bar=show_progress_bar).to_json()["layers"][-1]
    del measures["layer"]
    rows, *both = np.split(embeddings, np.cumsum([len(sample.sentences), len(sides[0])]))
    positives = (both[0], both[1]) if sample.positives else None
    if positives:
        measures["alignment"] = geometry.alignment(*positives)
    measures["uniformity"] = geometry.uniformity(rows)
    flat = spectrum.measure(rows, positives, temperature, under_dropout)
    numbers = {name: round(float(value), 6) for name, value in measures.items()} | flat.rounded()
    return Measured(numbers, np.round(flat.singular_values, 5).tolist())
