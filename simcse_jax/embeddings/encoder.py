"""A model with the options of `encode`, and all that its embeddings depend on."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from simcse_jax.encoding.embedder import Encoded
from simcse_jax.simcse import SimCSE


@dataclasses.dataclass(frozen=True)
class Options:
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


class Encoder:
    """The model, loaded."""

    def __init__(self, options: Options):
        """Loads it onto all local devices.

        Raises:
          UserError: for anything that is wrong with the model or an option.
        """
        self._options = options
        self._model = SimCSE(
            options.model,
            pooler=options.pooler,
            num_layers=options.num_layers,
            batch_size=options.batch_size,
            dtype=options.dtype,
            truncate_dim=options.truncate_dim,
        )
        self._prompt: Any = {"prompt": options.prompt, "prompt_name": options.prompt_name}

    @property
    def max_length(self) -> int:
        """The most tokens of a sentence."""
        return self._model.max_length if self._options.max_length is None else self._options.max_length

    @property
    def dimension(self) -> int:
        """The elements of an embedding."""
        return self._model.dimension

    def about(self) -> dict[str, Any]:
        """All that the embeddings depend on in addition to the sentences, by the names of options."""
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
        }

    def maker(self) -> dict[str, Any] | None:
        """What identifies the model for indexes of the embeddings; None if queries would be encoded in another way.

        An index cuts sentences at the model's own length. Products and distances also need the lengths that its queries
        have.
        """
        normalize, model = self._options.normalize, self._model
        same = normalize in (None, model.normalize) or model.similarity_fn_name == "cosine"
        if not same or self.max_length != model.max_length:
            return None
        return model.identity()._replace(prompt=model.prompt_of(**self._prompt))._asdict()

    def encode(self, sentences: Iterable[str], advance: Callable[[int], object] | None = None) -> Encoded:
        """The embeddings, and how many sentences were cut.

        Args:
          sentences: strings.
          advance: called with the number of sentences done since the last call.
        """
        return self._model.encode_counted(
            sentences,
            max_length=self.max_length,
            normalize_to_unit=self._options.normalize,
            advance=advance,
            **self._prompt,
        )
