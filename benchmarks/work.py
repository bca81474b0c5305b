"""Useful work: the matrix products that real tokens need, whatever else a contender computes.

Counted are an encoder's dense layers, its attention's two products and, where it is used, a D→D head, for the tokens of
each sentence alone: padding, and computing a second time to save memory, is waste. All tokens of all layers
count, on both sides, though ours leaves out what the [CLS] pooler does not read of the last one. A training step's
backward pass has two products for each of the forward pass. Not counted: anything but matrix products, and the products
of embeddings with each other in the loss, which are less than 1% at the sizes here.
"""

from collections.abc import Iterable, Sequence

from simcse_jax.models.config import EncoderConfig


def encoder_flops(config: EncoderConfig, lengths: Iterable[int], *, head: bool = False) -> float:
    """FLOPs of encoding sentences of so many tokens each, special ones included."""
    size, inner = config.hidden_size, config.intermediate_size
    dense = 2 * (4 * size * size + 2 * size * inner)  # queries, keys, values, output; the two layers after them
    total = 0.0
    for tokens in lengths:
        total += config.num_layers * (tokens * dense + 4 * tokens * tokens * size)
        total += 2 * size * size if head else 0
    return total


def training_flops(config: EncoderConfig, columns: Sequence[Sequence[int]], *, head: bool = True) -> float:
    """FLOPs that an example needs in a training step, on average: forward and backward.

    Args:
      config: the encoder's.
      columns: the lengths of the sentences that are encoded of each example: V lists of N numbers.
      head: whether a head is trained with it.
    """
    return 3 * sum(encoder_flops(config, column, head=head) for column in columns) / len(columns[0])
