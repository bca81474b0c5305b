"""Sentence-transformers behind the project's server: `python -m benchmarks.serve_peer --model M --port 0`.

Its tokenizer and its model take the place of ours in `simcse_jax.serving`; all else is the same.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.options import Parser
from simcse_jax.commands.command_line import run_command

BATCH = 32  # its own default


class Sentence(NamedTuple):
    """A text as tokens."""

    ids: np.ndarray
    cut: int


class Shape(NamedTuple):
    """A batch's."""

    tokens: int  # that are computed


class Theirs:
    """`simcse_jax.serving.service.Encoder` of a SentenceTransformer."""

    skipped, workers, most = 0, 1, BATCH  # its products use all cores

    def __init__(self, folder: str):
        from sentence_transformers import SentenceTransformer

        self._model = SentenceTransformer(folder)
        self.dimension, self.max_length = len(self._model.encode("a")), self._model.max_seq_length

    def tokenize(self, texts: Sequence[str]) -> list[Sentence]:
        """Texts as tokens, cut."""
        found = self._model.tokenizer(list(texts), truncation=True, max_length=self.max_length)
        return [Sentence(np.array(ids), 0) for ids in found["input_ids"]]

    def row_length(self, sentence: Sentence) -> int:
        """Its own length, so that sentences are sorted by it, as its `encode` does."""
        return len(sentence.ids)

    def choose(self, length: int, sizes: Sequence[int]) -> tuple[Shape, range]:
        """As many as there are."""
        return Shape(len(sizes) * length), range(len(sizes))

    def encode(self, sentences: Sequence[Sentence], shape: Shape) -> np.ndarray:
        """(B, D)."""
        import torch

        features = self._model.tokenizer.pad({"input_ids": [each.ids for each in sentences]}, return_tensors="pt")
        with torch.inference_mode():
            return self._model(dict(features))["sentence_embedding"].numpy()

    def shapes(self) -> list[Shape]:
        """One, to have it warm."""
        return [Shape(3 * BATCH)]

    def warm(self, shape: Shape) -> None:
        """Encodes a batch."""
        self.encode(self.tokenize(["a"] * BATCH), shape)


def main() -> None:
    """Serves until SIGTERM."""
    parser = Parser(prog="benchmarks.serve_peer", description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--truncate", action="store_true", help="as it always does")
    args = parser.parse_args()
    from simcse_jax.host.ports import bind
    from simcse_jax.runs.loading import load_model
    from simcse_jax.serving.app import App
    from simcse_jax.serving.guard import Guard
    from simcse_jax.serving.prometheus import Metrics
    from simcse_jax.serving.server import address_of, serve
    from simcse_jax.serving.service import Limits, Service

    encoder: Any = Theirs(str(load_model(args.model, 0).folder))
    limits, metrics = Limits(), Metrics()
    service = Service("sentence-transformers", {None: encoder}, limits, observe=metrics.count_batch)
    app = App(service, metrics)
    with bind("127.0.0.1", args.port) as bound:
        guard = Guard(app.asgi, limits, metrics, app.paths)
        serve(guard, bound, limits.seconds, f"serves {address_of(bound)}/v1")


if __name__ == "__main__":
    run_command(main)
