"""The fields of several sources in one run, of prompts and of lengths, and which of them go together with others."""

import csv
from collections.abc import Sequence
from typing import Any

from simcse_jax.config.sections import Config
from simcse_jax.data.documents import SPANS
from simcse_jax.data.mixture import read_weights
from simcse_jax.data.sources import split_sources
from simcse_jax.data.tokens import ROLES, Lengths, Prompts
from simcse_jax.errors import UserError
from simcse_jax.field import either, empty_or_one_of, explain, field, listed, rule
from simcse_jax.objectives.registry import needing, pairing_of

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


def _several(config: Any) -> bool:
    return "," in config.data.train


SOURCE_FIELDS = {
    "data.mixed": field(
        False,
        "Sources of data.train may have different columns: a sentence alone is its own positive, and hard negatives "
        "that a source lacks are left out of the loss.",
        only=lambda config: _several(config) and config.data.batching != ONE_SOURCE,
    ),
    "data.batching": field(
        "mixed", f"The sources of a batch's rows. {explain(BATCHING)}.", either(BATCHING), only=_several
    ),
    "data.equal_texts": field(
        "",
        "What the batch's texts are to an anchor that equal it or its positive, and what further positives of an equal "
        f"anchor are. {explain(EQUAL_TEXTS)}; empty: {LEFT_OUT} where rows have two texts or more, else {NEGATIVES}.",
        empty_or_one_of(EQUAL_TEXTS),
        only=lambda config: config.data.equal_texts == NEGATIVES or needing(config.objective, "contrasts"),
        before=NEGATIVES,
    ),
    "data.no_duplicates": field(
        False,
        "No two rows of a batch have a text in common, in whatever columns: rows that would have change places with "
        "others of the epoch. A text in more rows than there are batches stays in several rows of some.",
        only=lambda config: needing(config.objective, "contrasts"),
    ),
    "data.weights": field(
        (),
        "The share of each source of data.train in an epoch, as numbers in their order, e.g. 3,1; empty: by size.",
        listed("empty, or numbers above 0, from 1e-30 to 1e30, one for each source of data.train", read_weights),
        only=_several,
    ),
    "data.prompts.anchor": field("", "Before anchors, e.g. 'query: '."),
    "data.prompts.positive": field("", "Before positives and hard negatives, e.g. 'passage: '."),
    "data.lengths.anchor": field(0, "Tokens of an anchor.", _LENGTH),
    "data.lengths.positive": field(0, "Tokens of a positive, and of hard negatives.", _LENGTH),
}


def leaves_equal_out(config: Config, columns: int) -> bool:
    """Whether equal texts are no negatives, in data with so many columns of sentences."""
    wanted = config.data.equal_texts or (LEFT_OUT if columns > 1 else NEGATIVES)
    return wanted == LEFT_OUT and bool(needing(config.objective, "contrasts"))


def keeps_apart(config: Config) -> bool:
    """Whether no two rows of a batch may have a text in common."""
    return bool(config.data.no_duplicates and needing(config.objective, "contrasts"))


def lengths_of(config: Config) -> Lengths | None:
    """The most tokens of anchors and of other sentences; None if both are `data.max_length`."""
    lengths = config.data.lengths
    if not lengths.anchor and not lengths.positive:
        return None
    return Lengths(*(lengths[role] or config.data.max_length for role in ROLES))


def longest(config: Config) -> tuple[str, int]:
    """The most tokens of a sentence, and the field that says so."""
    lengths = config.data.lengths
    fields = {f"data.lengths.{role}": lengths[role] for role in ROLES if lengths[role]}
    if len(fields) < len(ROLES):
        fields["data.max_length"] = config.data.max_length
    name = max(fields, key=fields.__getitem__)
    return name, fields[name]


def prompts_of(config: Config) -> tuple[Prompts, ...]:
    """The prompts of each source, in their order; () without any."""
    given = config.data.prompts
    if not any(given.values()):
        return ()
    sources = split_sources(config.data.train)
    return tuple(map(Prompts, *(_split(f"config.data.prompts.{role}", given[role], sources) for role in ROLES)))


def _split(field: str, text: str, sources: Sequence[str]) -> list[str]:
    found = [text]
    if len(sources) == 1 and not text.startswith('"'):  # whatever it has in it
        return [text]
    if "," in text or '"' in text:
        try:
            found = next(csv.reader([text], strict=True))
        except csv.Error as error:
            raise UserError(
                f"{field}={text!r:.100}: not a list of prompts: {error}; put a prompt with a comma in double quotes"
            ) from None
    if len(found) not in (1, len(sources)):
        raise UserError(
            f"{field}={text!r:.100}: {len(found)} prompts, but data.train names {len(sources)} source(s); give one for "
            "all or one for each, and put a prompt with a comma in double quotes"
        )
    return found * (len(sources) if len(found) == 1 else 1)


def check_sources(config: Config) -> None:
    """Refuses weights and prompts that do not fit the sources, and data whose rows must stay together."""
    data = config.data
    prompts = prompts_of(config)
    count = len(split_sources(data.train)) if data.weights else 0
    if data.weights and len(data.weights) != count:
        raise UserError(
            f"config.data.weights={','.join(data.weights)}: {len(data.weights)} weights, but data.train names {count} "
            "source(s); give one for each, or none"
        )
    by_source = {
        "data.weights": bool(data.weights),
        "data.batching": data.batching == ONE_SOURCE,
        "data.no_duplicates": data.no_duplicates,
        **{
            f"data.prompts.{role}": len(set(each)) > 1
            for role, each in zip(ROLES, zip(*prompts, strict=True), strict=False)
        },
    }
    name = next((name for name, given in by_source.items() if given and data.positives == SPANS), None)
    if name is not None:
        raise UserError(f"config.{name}: spans are drawn from all documents together; leave it as it is by default")
    maker = pairing_of(config.objective)
    if data.no_duplicates and maker:
        raise UserError(
            f"config.data.no_duplicates: objective.{maker[0]} makes its pairs of all sentences of an epoch, and some "
            "of a sentence and itself; set it to False, or the objective's weight to 0.0"
        )
    if data.weights and maker and data.batching != ONE_SOURCE:
        raise UserError(
            f"config.data.weights: objective.{maker[0]} makes its pairs of all sentences of an epoch; leave it "
            f"empty, or set data.batching={ONE_SOURCE}"
        )
    if data.mixed and data.batching != ONE_SOURCE:
        check_mixed(config, "config.data.mixed", "set it to False")


def check_mixed(config: Config, field: str, otherwise: str) -> None:
    """Refuses what cannot leave out the sentences that some sources lack.

    Args:
      config: of a run on sources with different columns.
      field: what says that they are, and `otherwise`: what to do about it.
    """
    if config.projector.widths:
        raise UserError(
            f"{field}: batch norm of the projector would count what stands in for missing sentences; {otherwise}, or "
            "leave projector.widths empty"
        )
    if reading := needing(config.objective, "every_sentence"):
        raise UserError(
            f"{field}: objective.{reading[0].name} reads both sentences of every example, and some sources lack "
            f"one; {otherwise}, or set the objective's weight to 0.0"
        )
