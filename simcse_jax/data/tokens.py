"""Tokenizes examples: each sentence with its prompt, cut at its column's length."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simcse_jax.choices import ROLES
from simcse_jax.data.sources import Examples
from simcse_jax.errors import UserError

if TYPE_CHECKING:  # the config imports this file, but not the tokenizer
    from simcse_jax.huggingface.tokenizer import Tokenizer

LENGTH_MULTIPLE = 8  # lengths are rounded up to a multiple of it


class Lengths(NamedTuple):
    """The maximum number of tokens in a sentence."""

    anchor: int
    positive: int  # and hard negatives


class Prompts(NamedTuple):
    """Texts put before the sentences of a source."""

    anchor: str
    positive: str  # and hard negatives


NO_PROMPTS = Prompts("", "")


def prompts_by_name(prompts: Sequence[Prompts], columns: int) -> dict[str, str]:
    """The prompts under sentence-transformers' names: anchors are queries, others documents; a single column is both.

    {} if there are none, or sources have different prompts.
    """
    if not prompts or any(prompt != prompts[0] for prompt in prompts):
        return {}
    anchor, positive = prompts[0]
    return {"query": anchor, "document": anchor if columns == 1 else positive}


def padded_length(longest: int, most: int) -> int:
    """A length rounded up to a multiple of 8, and at most `most`."""
    return min(max(-(-longest // LENGTH_MULTIPLE), 1) * LENGTH_MULTIPLE, most)


def token_ids(
    examples: Examples, tokenizer: "Tokenizer", lengths: Lengths, prompts: Sequence[Prompts] = ()
) -> tuple[list[list[np.ndarray]], int]:
    """The token ids of each sentence, by column, and the number of sentences that were cut.

    A sentence that is its own positive has the anchor's prompt and length there too. Missing hard negatives have no
    prompt.
    """
    present = np.ones((len(examples), len(examples.columns)), bool) if examples.present is None else examples.present
    sources = np.zeros(len(examples), np.int64) if examples.sources is None else examples.sources
    columns, cut = [], 0
    for place, sentences in enumerate(examples.columns):
        roles = present[:, 1].astype(np.int64) if place == 1 else np.full(len(sentences), min(place, 1))
        if prompts:
            before = (prompts[source][role] for source, role in zip(sources.tolist(), roles.tolist(), strict=True))
            sentences = [text and prompt + text for prompt, text in zip(before, sentences, strict=True)]
        token_ids: list[np.ndarray] = [np.empty(0, np.int32)] * len(sentences)
        for role, length in enumerate(lengths):
            rows = np.flatnonzero(roles == role)
            tokens, too_long = tokenizer.tokenize([sentences[row] for row in rows.tolist()], length)
            cut += int(np.count_nonzero(present[rows[list(too_long)], place]))
            for row, ids in zip(rows.tolist(), tokens, strict=True):
                token_ids[row] = ids
        columns.append(token_ids)
    return columns, cut


def check_prompts(tokenizer: "Tokenizer", prompts: Sequence[Prompts], lengths: Lengths, field: str) -> None:
    """Refuses prompts that leave no room for a sentence.

    Args:
      field: the field with the prompts, "{}" standing for the role.
    """
    for role, role_prompts, length in zip(ROLES, zip(*prompts, strict=True), lengths, strict=False):
        for prompt in filter(None, role_prompts):
            (ids,) = tokenizer([prompt], length + 1)
            if len(ids) >= length:
                raise UserError(
                    f"{field.format(role)}={prompt!r:.100}: fills all {length} tokens of a sentence, so no word of it "
                    "would be left; choose a shorter prompt, or a larger length"
                )
