"""Judges of mined negatives: a second encoder's similarities, or scores of a cross-encoder."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float32

from simcse_jax.encoding.cross_encoder import CrossEncoder
from simcse_jax.errors import UserError
from simcse_jax.simcse import SimCSE
from simcse_jax.vectors.similarity import pairwise


class EncoderJudge:
    """A second encoder."""

    def __init__(self, model: SimCSE):
        self._model = model

    def score_of_each(
        self, queries: Sequence[str], documents: Sequence[Sequence[str]]
    ) -> list[Float32[np.ndarray, " n"]]:
        """The model's similarities; each distinct text is encoded once."""
        places = {text: place for place, text in enumerate(dict.fromkeys(itertools.chain(*documents)))}
        rows, asked = self._model.encode_document([*places]), self._model.encode_query([*queries])
        scores = []
        for query, texts in zip(asked, documents, strict=True):
            candidates = rows[[places[text] for text in texts]]
            repeated = np.broadcast_to(query, candidates.shape)
            scores.append(pairwise(repeated, candidates, self._model.similarity_fn_name))
        return scores


Judge = EncoderJudge | CrossEncoder


def open_judge(name: str, batch_size: int, dtype: str) -> tuple[Judge, dict[str, Any]]:
    """The judge of `--judge`, and all that its scores depend on, by the names that errors have.

    Raises:
      UserError: when it cannot be read, or is a cross-encoder with several labels.
    """
    try:
        if CrossEncoder.is_named(name):
            cross = CrossEncoder(name, batch_size=batch_size, dtype=dtype).check_one_label("mining")
            return cross, {"--judge": cross.identity()}
    except UserError as error:
        raise UserError(f"--judge {error}") from None
    model = SimCSE(name, batch_size=batch_size, dtype=dtype)
    return EncoderJudge(model), {"judge's prompts": model.prompts, "--judge": model.identity()._asdict()}
