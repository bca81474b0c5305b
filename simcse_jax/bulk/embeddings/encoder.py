"""A model with the options of `encode`, and everything that its embeddings depend on."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from simcse_jax.encoding.embedder import Encoded
from simcse_jax.host.storage import sha256
from simcse_jax.simcse import EncodedTokens, SimCSE
from simcse_jax.vectors.quantization import (
    PACKED,
    SCALAR,
    Precision,
    Quantization,
    Ranges,
    check_calibration,
    checked_ranges,
    ranges_of,
)

CALIBRATED = 1 << 14  # first rows that give the ranges where none are given


@dataclasses.dataclass(frozen=True)
class EncodingOptions:
    """How sentences are encoded; None follows the model's files."""

    model: str
    pooler: str | None = None
    num_layers: int = 0
    max_length: int | None = None
    batch_size: int = 64
    dtype: str = "float32"
    truncate_dim: int | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    normalize: bool | None = None
    output_dtype: str = "float32"
    tokens: bool = False  # whether to encode tokens rather than sentences
    ranges: Ranges | None = None  # for int8 and uint8; None for those of the first rows


class RowEncoder:
    """The model, loaded."""

    def __init__(self, options: EncodingOptions):
        """Loads it onto all local devices."""
        self._options = options
        self._model = SimCSE(
            options.model,
            pooler=options.pooler,
            num_layers=options.num_layers,
            batch_size=options.batch_size,
            dtype=options.dtype,
            truncate_dim=options.truncate_dim,
        )
        if options.ranges is not None:
            checked_ranges(options.ranges, self.dimension, "--ranges")
        self._prompt: Any = {"prompt": options.prompt, "prompt_name": options.prompt_name}

    @property
    def max_length(self) -> int:
        """The maximum number of tokens in a sentence."""
        return self._model.max_length if self._options.max_length is None else self._options.max_length

    @property
    def dimension(self) -> int:
        """The number of elements of an embedding."""
        return self._model.config.hidden_size if self._options.tokens else self._model.dimension

    @property
    def of_tokens(self) -> bool:
        """Whether it encodes tokens rather than sentences."""
        return self._options.tokens

    def about(self) -> dict[str, Any]:
        """Everything besides the sentences that the embeddings depend on, by option name."""
        options, model = self._options, self._model
        normalize: bool | str = model.normalize if options.normalize is None else options.normalize
        if normalize and options.normalize is None and model.truncate_dim:
            normalize = "before --truncate-dim"
        return {
            "--truncate-dim": model.truncate_dim,
            "--prompt": model.prompt_of(**self._prompt) or None,
            "--model": model.identity().sha256,
            "--pooler": f"{model.pooler}{' with head' if model.use_head else ''}",
            "--max-length": self.max_length,
            "--normalize": normalize,
            "--dtype": options.dtype,
            "--output-dtype": options.output_dtype,
            "--batch-size": options.batch_size,
            "--tokens": options.tokens or None,
            "--ranges": None if options.ranges is None else sha256(options.ranges),
        }

    def quantization(self, first: Iterator[str]) -> Quantization | None:
        """How the embeddings are quantized; None if they are not.

        Without given ranges, they are those of the first rows; a single row is refused.

        Args:
          first: the sentences from the first row on; at most `CALIBRATED` are read.
        """
        precision, ranges = self._options.output_dtype, self._options.ranges
        if precision not in (*SCALAR, *PACKED):
            return None
        if precision in SCALAR and ranges is None:
            part = list(itertools.islice(first, CALIBRATED))
            check_calibration(len(part))
            ranges = ranges_of(self.encode(part).embeddings)
        return Quantization(cast(Precision, precision), self.dimension, ranges)

    def maker(self) -> dict[str, Any] | None:
        """The model's identity for indexes of the embeddings; None if queries would be encoded differently.

        An index cuts queries at the model's own length. Products and distances also need vectors of the same scale.
        """
        normalize, model = self._options.normalize, self._model
        same = normalize in (None, model.normalize) or model.similarity_fn_name == "cosine"
        if not same or self.max_length != model.max_length:
            return None
        return model.identity()._replace(prompt=model.prompt_of(**self._prompt))._asdict()

    def encode(self, sentences: Iterable[str], advance: Callable[[int], object] | None = None) -> Encoded:
        """The embeddings, and how many sentences were cut; calls `advance` with the number done since the last call."""
        return self._model.encode_counted(
            sentences,
            max_length=self.max_length,
            normalize_to_unit=self._options.normalize,
            advance=advance,
            **self._prompt,
        )

    def encode_tokens(self, sentences: Iterable[str], advance: Callable[[int], object] | None = None) -> EncodedTokens:
        """The embeddings of the sentences' tokens; see `encode`."""
        options = {"max_length": self.max_length, "advance": advance, **self._prompt}
        return self._model.encode_tokens_counted(sentences, **options)
