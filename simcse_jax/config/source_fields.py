"""The fields of several sources in one run, of prompts and of lengths, and which of them go together with others."""

import csv
from collections.abc import Sequence

from simcse_jax.choices import ROLES
from simcse_jax.config.sections import Config
from simcse_jax.errors import UserError
from simcse_jax.field import empty_or_one_of, explain, field, list_of, one_of, rule
from simcse_jax.host.names import split_sources
from simcse_jax.objectives.registry import needing

ONE_SOURCE = "one_source"
BATCHING = {"mixed": "any of them", ONE_SOURCE: "one of them, so negatives in the batch are of the same source"}
LEFT_OUT, NEGATIVES = "left_out", "negatives"
EQUAL_TEXTS = {LEFT_OUT: "no negatives of it", NEGATIVES: "negatives like all others, as in the papers"}
SHORTEST = 3  # tokens: two of them are special

SOURCE_SECTIONS = {
    "data.prompts": "Texts put before sentences. Several sources have the same, or one each with commas in between.",
    "data.lengths": "Tokens per sentence by column, with its prompt; 0: data.max_length.",
}
_LENGTH = rule(f"0, or {SHORTEST} or more (two of them are special tokens)", lambda n: n == 0 or n >= SHORTEST)


def read_range(parts: Sequence[str]) -> tuple[float, float] | None:
    """The lowest and the highest score in `data.score_range`; None if empty. A `ValueError` refuses other values."""
    if not parts:
        return None
    low, high = map(float, parts)
    if not -1e30 <= low < high <= 1e30:
        raise ValueError(f"{low} and {high} are not bounds")
    return low, high


def read_weights(parts: Sequence[str]) -> tuple[float, ...]:
    """The weights in `data.weights`; a `ValueError` refuses what is not a number from 1e-30 to 1e30."""
    weights = tuple(map(float, parts))
    if not all(1e-30 <= weight <= 1e30 for weight in weights):
        raise ValueError(f"{weights} are not weights")
    return weights


SOURCE_FIELDS = {
    "data.mixed": field(
        False,
        "Sources of data.train may have different columns: a sentence alone is its own positive, and hard negatives "
        "that a source lacks are left out of the loss.",
    ),
    "data.batching": field("mixed", f"The sources of a batch's rows. {explain(BATCHING)}.", one_of(BATCHING)),
    "data.equal_texts": field(
        "",
        "What the batch's texts are to an anchor that equal it or its positive, and what further positives of an equal "
        f"anchor are. {explain(EQUAL_TEXTS)}; empty: {LEFT_OUT} where rows have two texts or more, else {NEGATIVES}.",
        empty_or_one_of(EQUAL_TEXTS),
    ),
    "data.no_duplicates": field(
        False,
        "No two rows of a batch have a text in common, in whatever columns: rows that would have change places with "
        "others of the epoch. A text in more rows than there are batches stays in several rows of some.",
    ),
    "data.weights": field(
        (),
        "The share of each source of data.train in an epoch, as numbers in their order, e.g. 3,1; empty: by size.",
        list_of("empty, or numbers above 0, from 1e-30 to 1e30, one for each source of data.train", read_weights),
    ),
    "data.prompts.anchor": field("", "Before anchors, e.g. 'query: '."),
    "data.prompts.positive": field("", "Before positives and hard negatives, e.g. 'passage: '."),
    "data.lengths.anchor": field(0, "Tokens of an anchor.", _LENGTH),
    "data.lengths.positive": field(0, "Tokens of a positive, and of hard negatives.", _LENGTH),
}


def read_prompts(config: Config) -> list[list[str]]:
    """The prompts of each role of `ROLES`, those of all sources in their order; [] without any."""
    prompts, sources = config.data.prompts, split_sources(config.data.train)
    if not any(prompts.values()):
        return []
    return [_split(f"config.data.prompts.{role}", prompts[role], sources) for role in ROLES]


def _split(field: str, text: str, sources: Sequence[str]) -> list[str]:
    prompts = [text]
    if len(sources) == 1 and not text.startswith('"'):  # whatever it has in it
        return [text]
    if "," in text or '"' in text:
        try:
            prompts = next(csv.reader([text], strict=True))
        except csv.Error as error:
            raise UserError(
                f"{field}={text!r:.100}: not a list of prompts: {error}; put a prompt with a comma in double quotes"
            ) from None
    if len(prompts) not in (1, len(sources)):
        raise UserError(
            f"{field}={text!r:.100}: {len(prompts)} prompts, but data.train names {len(sources)} source(s); give one "
            "for all or one for each, and put a prompt with a comma in double quotes"
        )
    return prompts * (len(sources) if len(prompts) == 1 else 1)


def gap_reason(config: Config) -> tuple[str, str] | None:
    """Why no row may lack a sentence that others have, and how to change that; None: rows may."""
    if config.projector.widths:
        return (
            "batch norm of the projector would count what stands in for missing sentences",
            "leave projector.widths empty",
        )
    if reading := needing(config.objective, "every_sentence") or needing(config.objective, "teacher"):
        return (
            f"objective.{reading[0].name} reads all sentences of every example, and some sources lack one",
            "set the objective's weight to 0.0",
        )
    return None
