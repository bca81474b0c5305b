"""The training data of a run, read: examples in memory, or prepared corpora."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from simcse_jax.config.loss_fields import scored_by_data
from simcse_jax.config.sections import Section
from simcse_jax.config.source_fields import ONE_SOURCE, keeps_apart, leaves_equal_out, lengths_of, longest, prompts_of
from simcse_jax.data.augment import augment
from simcse_jax.data.batches import Corpus, tokenize
from simcse_jax.data.corpora import AnyCorpus, Part
from simcse_jax.data.documents import SPANS, Spans, cut_spans
from simcse_jax.data.equal_texts import numbered
from simcse_jax.data.examples import Examples, read_examples
from simcse_jax.data.mixture import read_weights
from simcse_jax.data.one_source import OneSource
from simcse_jax.data.pairing import Pairing
from simcse_jax.data.scores import Scores, read_range
from simcse_jax.data.sources import split_sources
from simcse_jax.data.tokens import ROLES, Lengths, Prompts, check_prompts
from simcse_jax.devices import processes
from simcse_jax.errors import UserError
from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.models.changes import Repeated
from simcse_jax.models.config import REPEATED
from simcse_jax.objectives.registry import needing, pairing_of
from simcse_jax.training.columns import check_corpus, check_scores
from simcse_jax.training.prepared import by_weight, open_prepared
from simcse_jax.training.teacher import read_teachers, teach


def read_training_examples(config: Section) -> Examples:
    """Reads the rows of `data.train`, which are not prepared.

    Raises:
      UserError: naming the file and the row, or the field.
    """
    data = config.data
    return read_examples(
        data.train,
        data.columns,
        positives=data.positives,
        labels=bool(needing(config.objective, "labels")),
        subsample=data.subsample,
        seed=config.seed,
        mixed=data.mixed or data.batching == ONE_SOURCE,
        scores=scores_of(config),
    )


def read_corpus(
    config: Section, model: Pretrained, tokenizer: Tokenizer, examples: Examples | None = None
) -> AnyCorpus:
    """Reads, augments and tokenizes the training sentences, or opens them prepared, and prints their number.

    `examples` are those to train on if some of the data are held out; None: all.

    Raises:
      UserError: naming the file and the row, or the field.
    """
    field, most = longest(config)
    if most > model.config.max_length:
        raise UserError(f"config.{field}={most}: {model.name} takes at most {model.config.max_length} tokens")
    _check_template(config, model, tokenizer)
    if prepared := open_prepared(config, tokenizer):
        check_roles(config, [name for name, each in prepared.items() if each.num_columns == 1], len(prepared))
        opened = []
        for name, each in prepared.items():
            pairing = choose_pairing(config, each.num_columns)
            check_enough(config, name, each.num_rows, pairing)
            opened.append(dataclasses.replace(each, pairing=pairing))
        found: AnyCorpus = opened[0] if len(opened) == 1 else one_source(config, list(prepared), opened)
    else:
        found = _tokenized(config, model, tokenizer, examples)
    check_corpus(config, found)
    if config.views.positive_change == REPEATED:
        for part in found.parts:
            _check_repeated(config, model, int(part.places[min(1, part.num_columns - 1)]))
    return found


def _check_repeated(config: Section, model: Pretrained, length: int) -> None:
    """Refuses positives of `length` tokens that would have more than the model takes, once some are repeated."""
    views = config.views
    longer = length + Repeated(views.repetition, views.repetition_reading).most(length)
    if longer > model.config.max_length:
        raise UserError(
            f"config.views.positive_change={REPEATED}: a positive of {length} tokens then has up to {longer}, and "
            f"{model.name} takes at most {model.config.max_length}; set a lower data.max_length"
        )


def _check_template(config: Section, model: Pretrained, tokenizer: Tokenizer) -> None:
    """Refuses lengths that leave no room for a sentence in its template, or none for a longer one of positives.

    And positives with repeated tokens, which would be the template's too.
    """
    template, other = tokenizer.template, config.views.positive_template
    if template is None:
        return
    if config.views.positive_change == REPEATED:
        raise UserError(
            f"config.views.positive_change={REPEATED!r}: repeats words of the template that {model.name} has, too; "
            "set it to none"
        )
    lengths = lengths_of(config)
    shortest = min(lengths or (config.data.max_length,))
    if shortest <= template.size:
        field = "lengths" if lengths else "max_length"
        raise UserError(
            f"config.data.{field}={shortest}: the template alone has {template.size} tokens; set it to more, "
            f"{template.size + 32} for 32 tokens of a sentence"
        )
    longer = longest(config)[1] - template.size + (tokenizer.make_template(other).size if other else 0)
    if longer > model.config.max_length:
        raise UserError(
            f"config.views.positive_template={other!r:.100}: a positive then has up to {longer} tokens, and "
            f"{model.name} takes at most {model.config.max_length}; set a lower data.max_length"
        )


def _tokenized(config: Section, model: Pretrained, tokenizer: Tokenizer, examples: Examples | None) -> AnyCorpus:
    """The corpus of texts."""
    data, prompts, lengths = config.data, prompts_of(config), lengths_of(config)
    names = split_sources(data.train)
    check_prompts(tokenizer, prompts, lengths or Lengths(*[data.max_length] * 2), "config.data.prompts.{}")
    teachers = read_teachers(config, model.config.sentence_size)
    examples = read_training_examples(config) if examples is None else examples
    check_scores(config, examples)
    if data.augment.name:
        examples = augmented(config, examples)
    group, kinds = 1, [examples.kinds_of_source(number) for number in range(len(names))]
    if data.positives == SPANS:
        examples, group = _spans(config, tokenizer, examples.columns[0]), data.spans.anchors
        positives = f"{data.spans.positives} positives an anchor"
        kinds = [f"{len(examples) // group} documents, {group} anchors each, {positives}"]
    _say_kinds(data.train, names, kinds, examples)
    pairing = choose_pairing(config, len(examples.columns))
    check_enough(config, data.train, len(examples), pairing)
    check_roles(config, alone_in(names, examples), len(names))
    corpus = tokenize(examples, tokenizer, lengths or data.max_length, prompts)
    corpus = dataclasses.replace(corpus, pairing=pairing, group=group)
    if corpus.cut:
        at = " and ".join(str(length) for length in dict.fromkeys(lengths or (data.max_length,)))
        every = len(examples) * len(examples.columns) if examples.present is None else int(examples.present.sum())
        processes.say(f"{corpus.cut:,} of {every:,} sentences have more than {at} tokens and are cut there")
    if teachers:
        corpus = dataclasses.replace(corpus, taught=teach(config, teachers, examples))
    if prompts:
        say_prompts(names, prompts)
    if corpus.sizes and (data.weights or data.batching == ONE_SOURCE):
        check_drawn(config, names, corpus.sizes)
    if corpus.sizes and data.batching == ONE_SOURCE:
        firsts = itertools.accumulate(corpus.sizes, initial=0)
        parts = [corpus.of_source(number) for number in range(len(corpus.sizes))]
        numbered_parts = [with_texts(config, part, examples, first) for part, first in zip(parts, firsts, strict=False)]
        return one_source(config, names, numbered_parts)
    if data.weights and corpus.sizes:
        corpus = dataclasses.replace(corpus, mixture=by_weight(config, names, corpus.sizes))
    return with_texts(config, corpus, examples)


def with_texts(config: Section, corpus: Corpus, examples: Examples, first: int = 0) -> Corpus:
    """A corpus with numbers of its texts, where something depends on which are equal.

    `first` is its first row in `examples`.
    """
    width, rows = corpus.input_ids.shape[1], slice(first, first + corpus.num_rows)
    left_out, apart = leaves_equal_out(config, width), keeps_apart(config)
    if not (left_out or apart):
        return corpus
    columns = (column[rows] for column in examples.columns[:width])
    numbers, texts = numbered(zip(*columns, strict=True))
    there = np.array([bool(text) for text in texts])[numbers]
    return dataclasses.replace(
        corpus, texts=numbers if left_out else None, apart=np.where(there, numbers, -1) if apart else None
    )


def _spans(config: Section, tokenizer: Tokenizer, documents: Sequence[str]) -> Examples:
    def pieces(document: str) -> Any:
        return tokenizer.pieces(f" {document}")  # as released: a word's first piece, for RoBERTa too

    spans = Spans(**config.data.spans)
    return cut_spans(documents, pieces, tokenizer.text, spans, config.seed, config.data.train)


def _say_kinds(data: str, names: Sequence[str], kinds: list[str], examples: Examples) -> None:
    """Prints what each source has, and the rows that were skipped."""
    skipped = {"blank rows": examples.blank, "without a label": examples.unlabelled}
    skipped["without a score"] = examples.unscored
    notes = [f"{count} {what} skipped" for what, count in skipped.items() if count]
    if kinds[1:]:
        for name, kind in zip(names, kinds, strict=True):
            processes.say(f"{name}: {kind}")
        kinds = notes and ["of all files"]
    if kinds:
        processes.say(", ".join([f"{data}: {kinds[0]}", *notes]))


def scores_of(config: Section) -> Scores | None:
    """How a run reads scores; None if no objective needs them."""
    objectives = needing(config.objective, "scores")
    if not objectives and scored_by_data(config):
        return Scores(f"objective.{needing(config.objective, 'teacher')[0].name}", of_candidates=True)
    if not objectives:
        return None
    bounds = read_range(config.data.score_range)
    unit = [one.name for one in objectives if one.scores == "unit"]
    if bounds is None and unit:
        return Scores(f"objective.{unit[0]}", (0.0, 1.0))
    return Scores(f"objective.{objectives[0].name}", bounds, stated=bounds is not None)


def check_drawn(config: Section, names: Sequence[str], sizes: Sequence[int]) -> None:
    """Refuses a subsample without any row of a source that is to have its turns.

    Raises:
      UserError: naming the source.
    """
    for name, size in itertools.zip_longest(names, sizes, fillvalue=0):
        if not size:
            raise UserError(f"config.data.subsample={config.data.subsample}: draws no row of {name}; draw more")


def say_prompts(names: Sequence[str], prompts: Sequence[Prompts]) -> None:
    """Prints the prompts of each source; one line where all have the same."""
    same = all(each == prompts[0] for each in prompts)
    for name, each in zip(["all sources" if names[1:] else names[0]] if same else names, prompts, strict=False):
        processes.say(f"{name}: prompts {each.anchor!r} and {each.positive!r}")


def one_source(config: Section, names: Sequence[str], parts: Sequence[Part]) -> OneSource:
    """The sources of a run whose batches have rows of one source each.

    Raises:
      UserError: naming a source that is smaller than a batch, or whose weight is too small.
    """
    found = OneSource(tuple(names), tuple(parts), read_weights(config.data.weights))
    found.mixture(config.train.batch_size)
    return found


def alone_in(names: Sequence[str], examples: Examples) -> list[str]:
    """The sources with one column of sentences, each its own positive."""
    widths = np.full(len(examples), len(examples.columns)) if examples.present is None else examples.present.sum(axis=1)
    of = np.zeros(len(examples), np.int64) if examples.sources is None else examples.sources
    return [name for number, name in enumerate(names) if widths[of == number].max(initial=0) == 1]


def check_roles(config: Section, alone: Sequence[str], count: int) -> None:
    """Refuses prompts and lengths of positives where there are none.

    Args:
      config: of the run.
      alone: those of its `count` sources that have one column of sentences.

    Raises:
      UserError: naming the field and the data.
    """
    data, role = config.data, ROLES[1]
    hint = "has one column of sentences, and a sentence that is its own positive is read as an anchor; leave it empty"
    if data.lengths[role] and len(alone) == count:
        raise UserError(f"config.data.lengths.{role}={data.lengths[role]}: {alone[0]} {hint.replace('empty', 'at 0')}")
    by_source = prompts_of(config)
    listed = len({each.positive for each in by_source}) > 1
    for name, prompts in zip(split_sources(data.train), by_source, strict=False):
        if prompts.positive and name in alone and (listed or len(alone) == count):
            raise UserError(f"config.data.prompts.{role}={prompts.positive!r:.100}: {name} {hint}")


def check_enough(config: Section, name: str, count: int, pairing: Pairing | None) -> None:
    """Refuses data that do not fill a batch.

    Args:
      config: of the run.
      name: of the data.
      count: their rows.
      pairing: makes the examples of them; None: the rows are the examples.

    Raises:
      UserError: naming the data and their number of rows.
    """
    size = config.train.batch_size
    if count < 2:
        raise UserError(f"{name}: one example; training needs two or more, the others of a batch are negatives")
    if not pairing and count < size:
        raise UserError(f"{name}: {count} examples are fewer than one batch; set train.batch_size to {count} or less")
    if pairing and (pairs := pairing.count(count)) < size:
        raise UserError(f"{name}: {count} sentences make {pairs} pairs, fewer than one batch (train.batch_size={size})")


def choose_pairing(config: Section, num_columns: int) -> Pairing | None:
    """How an objective pairs the sentences of one column; None where rows are pairs.

    Raises:
      UserError: when the data have more than one column.
    """
    if (maker := pairing_of(config.objective)) is None:
        return None
    name, pairing = maker
    if num_columns > 1:
        raise UserError(
            f"config.objective.{name}.weight: pairs sentences by itself, but {config.data.train} has "
            f"{num_columns} columns of them; choose one with data.columns.anchor"
        )
    return pairing


def augmented(config: Section, examples: Examples) -> Examples:
    """Pairs of a sentence and a changed copy of it."""
    options = config.data.augment
    if len(examples.columns) > 1:
        raise UserError(
            f"config.data.augment.name={options.name!r}: {config.data.train} has positives of its own; "
            "choose its sentences alone with data.columns.anchor"
        )

    def change(column: int) -> list[str]:
        names = ("name", "percent", "lexicon", "mlm_model")
        chosen = {name: options[name] for name in names}
        return augment(examples.columns[0], seed=config.seed, column=column, **chosen)

    return dataclasses.replace(examples, columns=(change(0) if options.both else examples.columns[0], change(1)))
