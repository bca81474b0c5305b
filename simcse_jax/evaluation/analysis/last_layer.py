"""The last layer in eight numbers, cheap enough to measure during training: section 4 of the isotropy paper.

Token embeddings give six of them, as `measure` measures them with its default protocol; sentence embeddings
give alignment and uniformity (SimCSE, eq. 2 and 3). All sentences are the same every time.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple, runtime_checkable
from typing import Protocol as Interface

import numpy as np

from simcse_jax.evaluation import geometry, sts
from simcse_jax.evaluation.analysis.inputs import evenly
from simcse_jax.evaluation.analysis.measure import measure
from simcse_jax.evaluation.analysis.tokens import Survey, TokenEncoder
from simcse_jax.evaluation.evaluator import Encode


@runtime_checkable
class Embed(Interface):
    """A model: sentences to embeddings, and to the hidden states of layers."""

    @property
    def tokens(self) -> TokenEncoder:
        """The hidden states of layers."""
        ...

    def __call__(self, sentences: Sequence[str], /) -> np.ndarray:
        """(N, D) embeddings of N sentences."""
        ...


class Sample(NamedTuple):
    """What is measured on."""

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


class LastLayer(NamedTuple):
    """An evaluator: {"analysis": the numbers of `measure_last_layer`}."""

    survey: Survey  # of the sample's sentences, by the model's tokenizer
    sample: Sample

    def __call__(self, embed: Embed) -> dict[str, Any]:
        """The numbers of one model."""
        return {"analysis": measure_last_layer(embed, embed.tokens, self.survey, self.sample)}


def measure_last_layer(
    encode: Encode, tokens: TokenEncoder, survey: Survey, sample: Sample, *, show_progress_bar: bool = False
) -> dict[str, float]:
    """Measures one model.

    Args:
      tokens: sentences to the hidden states of layers, of which the last one counts.
      survey: of the sample's sentences, by the model's tokenizer.

    Returns:
      `anisotropy`, `self_similarity`, `intra_sentence_similarity`, `l2_norm`, `adjusted_self_similarity`,
      `adjusted_intra_sentence_similarity`, `alignment` where there are positives, and `uniformity`.
    """
    sides = [list(side) for side in zip(*sample.positives, strict=True)] or [[], []]
    embeddings = encode([*sample.sentences, *sides[0], *sides[1]])
    found = measure(tokens, survey, show_progress_bar=show_progress_bar).to_json()["layers"][-1]
    del found["layer"]
    count, pairs = len(sample.sentences), len(sample.positives)
    if pairs:
        found["alignment"] = geometry.alignment(embeddings[count : count + pairs], embeddings[count + pairs :])
    found["uniformity"] = geometry.uniformity(embeddings[:count])
    return {name: round(float(value), 6) for name, value in found.items()}
