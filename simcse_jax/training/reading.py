"""The training data of a run, read: examples in memory, or prepared corpora."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from simcse_jax.choices import REPEATED
from simcse_jax.data.augment import augment
from simcse_jax.data.batches import Corpus, tokenize
from simcse_jax.data.corpora import AnyCorpus, MixedCorpus
from simcse_jax.data.documents import cut_spans
from simcse_jax.data.equal_texts import numbered
from simcse_jax.data.examples import Examples, read_examples
from simcse_jax.data.one_source import OneSource
from simcse_jax.data.pairing import Pairing
from simcse_jax.data.tokens import Prompts, check_prompts
from simcse_jax.devices import processes
from simcse_jax.errors import UserError
from simcse_jax.host.names import split_sources
from simcse_jax.huggingface.load import Pretrained
from simcse_jax.huggingface.tokenizer import Tokenizer
from simcse_jax.objectives.objective import CLASSES, RELATIONS
from simcse_jax.training.data_spec import DataSpec
from simcse_jax.training.prepared import mix_by_weight, open_prepared
from simcse_jax.training.teacher import read_teachers, teach


def read_training_examples(data: DataSpec) -> Examples:
    """Reads the rows of `data.train`, which are not prepared.

    Raises:
      UserError: naming the file and the row, or the field.
    """
    return read_examples(
        data.train,
        data.columns,
        positives=data.positives,
        labels=data.labels == RELATIONS,
        classes=data.labels == CLASSES,
        subsample=data.subsample,
        seed=data.seed,
        mixed=data.mixed or data.one_source,
        scores=data.scores,
    )


def read_corpus(data: DataSpec, model: Pretrained, tokenizer: Tokenizer, examples: Examples | None = None) -> AnyCorpus:
    """Reads, augments and tokenizes the training sentences, or opens them prepared, and prints their number.

    `examples` are those to train on if some of the data are held out; None: all.

    Raises:
      UserError: naming the file and the row, or the field.
    """
    field, most = data.longest
    if most > model.config.max_length:
        raise UserError(f"config.{field}={most}: {model.name} takes at most {model.config.max_length} tokens")
    _check_template(data, model, tokenizer)
    if prepared := open_prepared(data, model, tokenizer):
        opened = []
        for name, source in prepared.items():
            pairing = choose_pairing(data, source.num_columns)
            check_enough(data.batch_size, name, source.num_rows, pairing)
            opened.append(dataclasses.replace(source, pairing=pairing))
        corpus: AnyCorpus = opened[0] if len(opened) == 1 else make_one_source(data, list(prepared), opened)
    else:
        corpus = _tokenize(data, model, tokenizer, examples)
    if data.repeated:
        for part in corpus.parts:
            length = int(part.places[min(1, part.num_columns - 1)])
            _check_room(f"views.positive_change={REPEATED}", length + data.repeated.most(length), model)
    return corpus


def _check_room(field: str, longest: int, model: Pretrained) -> None:
    """Refuses positives that are changed to more tokens than the model takes."""
    if longest > model.config.max_length:
        raise UserError(
            f"config.{field}: a positive then has up to {longest} tokens, and {model.name} takes at most "
            f"{model.config.max_length}; set a lower data.max_length"
        )


def _check_template(data: DataSpec, model: Pretrained, tokenizer: Tokenizer) -> None:
    """Refuses lengths that leave no room for a sentence in its template, or none for a longer one of positives.

    Also refuses positives with repeated tokens, since the template's would be repeated too.
    """
    template, other = tokenizer.template, data.positive_template
    if template is None:
        return
    if data.repeated:
        raise UserError(
            f"config.views.positive_change={REPEATED!r}: repeats words of the template that {model.name} has, too; "
            "set it to none"
        )
    if (shortest := min(data.lengths)) <= template.size:
        field = "lengths" if any(data.own_lengths) else "max_length"
        raise UserError(
            f"config.data.{field}={shortest}: the template alone has {template.size} tokens; set it to more"
        )
    longer = data.longest[1] - template.size + (tokenizer.make_template(other).size if other else 0)
    _check_room(f"views.positive_template={other!r:.100}", longer, model)


def _tokenize(data: DataSpec, model: Pretrained, tokenizer: Tokenizer, examples: Examples | None) -> AnyCorpus:
    """The corpus of texts."""
    names, prompts = split_sources(data.train), data.prompts
    check_prompts(tokenizer, prompts, data.lengths, "config.data.prompts.{}")
    teachers = read_teachers(data.teacher, model.name, model.config.sentence_size) if data.teacher else []
    examples = read_training_examples(data) if examples is None else examples
    check_scores(data, examples)
    if data.augment:
        examples = augment_examples(data, examples)
    group, kinds = 1, [examples.kinds_of_source(number) for number in range(len(names))]
    if data.spans:
        examples, group = _spans(data, tokenizer, examples.columns[0]), data.spans.anchors
        positives = f"{data.spans.positives} positives an anchor"
        kinds = [f"{len(examples) // group} documents, {group} anchors each, {positives}"]
    _say_kinds(data.train, names, kinds, examples)
    pairing = choose_pairing(data, len(examples.columns))
    check_enough(data.batch_size, data.train, len(examples), pairing)
    corpus = tokenize(examples, tokenizer, data.lengths if any(data.own_lengths) else data.max_length, prompts)
    corpus = dataclasses.replace(corpus, pairing=pairing, group=group)
    if corpus.cut:
        at = " and ".join(str(length) for length in dict.fromkeys(data.lengths))
        sentences = len(examples) * len(examples.columns) if examples.present is None else int(examples.present.sum())
        processes.say(f"{corpus.cut:,} of {sentences:,} sentences have more than {at} tokens and are cut there")
    if data.teacher:
        corpus = dataclasses.replace(corpus, teacher=teach(data.teacher, teachers, examples))
    if prompts:
        say_prompts(names, prompts)
    if corpus.sizes and (data.weights or data.one_source):
        check_drawn(data.subsample, names, corpus.sizes)
    if corpus.sizes and data.one_source:
        firsts = itertools.accumulate(corpus.sizes, initial=0)
        parts = [corpus.of_source(number) for number in range(len(corpus.sizes))]
        numbered_parts = [number_texts(data, part, examples, first) for part, first in zip(parts, firsts, strict=False)]
        return make_one_source(data, names, numbered_parts)
    if data.weights and corpus.sizes:
        corpus = dataclasses.replace(corpus, mixture=mix_by_weight(data.weights, names, corpus.sizes))
    return number_texts(data, corpus, examples)


def number_texts(data: DataSpec, corpus: Corpus, examples: Examples, first: int = 0) -> Corpus:
    """A corpus with numbers of its texts, where something depends on which are equal.

    `first` is its first row in `examples`.
    """
    width, rows = corpus.input_ids.shape[1], slice(first, first + corpus.num_rows)
    left_out = data.leaves_equal_out(width)
    if not (left_out or data.keeps_apart):
        return corpus
    columns = (column[rows] for column in examples.columns[:width])
    numbers, texts = numbered(zip(*columns, strict=True))
    has_text = np.array([bool(text) for text in texts])[numbers]
    apart = np.where(has_text, numbers, -1) if data.keeps_apart else None
    return dataclasses.replace(corpus, texts=numbers if left_out else None, apart=apart)


def _spans(data: DataSpec, tokenizer: Tokenizer, documents: Sequence[str]) -> Examples:
    def pieces(document: str) -> Any:
        return tokenizer.pieces(f" {document}")  # as released: a word's first piece, for RoBERTa too

    assert data.spans is not None
    return cut_spans(documents, pieces, tokenizer.text, data.spans, data.seed, data.train)


def _say_kinds(data: str, names: Sequence[str], kinds: list[str], examples: Examples) -> None:
    """Prints what each source has, and the rows that were skipped."""
    skipped = {"blank rows": examples.blank, "without a label": examples.unlabelled}
    skipped["without a score"] = examples.unscored
    notes = [f"{count} {reason} skipped" for reason, count in skipped.items() if count]
    if kinds[1:]:
        for name, kind in zip(names, kinds, strict=True):
            processes.say(f"{name}: {kind}")
        kinds = notes and ["of all files"]
    if kinds:
        processes.say(", ".join([f"{data}: {kinds[0]}", *notes]))


def check_drawn(subsample: int, names: Sequence[str], sizes: Sequence[int]) -> None:
    """Refuses a subsample that leaves a source without rows."""
    for name, size in itertools.zip_longest(names, sizes, fillvalue=0):
        if not size:
            raise UserError(f"config.data.subsample={subsample}: draws no row of {name}; draw more")


def say_prompts(names: Sequence[str], prompts: Sequence[Prompts]) -> None:
    """Prints the prompts of each source; one line where all have the same."""
    same = all(prompt == prompts[0] for prompt in prompts)
    for name, prompt in zip(["all sources" if names[1:] else names[0]] if same else names, prompts, strict=False):
        processes.say(f"{name}: prompts {prompt.anchor!r} and {prompt.positive!r}")


def make_one_source(data: DataSpec, names: Sequence[str], parts: Sequence[MixedCorpus]) -> OneSource:
    """The sources of a run whose batches have rows of one source each; refuses those that would have no batch."""
    source = OneSource(tuple(names), tuple(parts), data.weights)
    source.mixture(data.batch_size)
    return source


def check_enough(size: int, name: str, count: int, pairing: Pairing | None) -> None:
    """Refuses `count` rows of these data if they make fewer examples than a batch of `size`, or than two."""
    made = pairing.count(count) if pairing else count
    if made < max(size, 2):
        what = f"{count} sentences make {made} pairs" if pairing else f"{count} examples"
        raise UserError(f"{name}: {what}, fewer than a batch (train.batch_size={size}), which needs two or more")


def choose_pairing(data: DataSpec, num_columns: int) -> Pairing | None:
    """How an objective pairs the sentences of one column; None where rows are pairs."""
    if data.pairing and num_columns > 1:
        raise UserError(
            f"config.objective.{data.paired_by}.weight: pairs sentences by itself, but {data.train} has "
            f"{num_columns} columns of them; choose one with data.columns.anchor"
        )
    return data.pairing


def check_scores(data: DataSpec, examples: Examples) -> None:
    """Refuses scores that are all the same, where pairs are compared by them, and a single class."""
    if data.labels == CLASSES and len(examples) and examples.labels is not None and not np.ptp(examples.labels):
        raise UserError(f"{data.train}: all {len(examples):,} rows have one class; bring rows of another")
    scores = examples.scores
    if scores is not None and data.ranked_by and len(scores) > 1 and not scores.max() > scores.min():
        alike = f"all {len(scores)} scores are {scores[0]:g}"
        raise UserError(f"{data.train}: {alike}, so objective.{data.ranked_by} has no two pairs to compare")


def augment_examples(data: DataSpec, examples: Examples) -> Examples:
    """Pairs of a sentence and a changed copy of it."""
    options = data.augment
    assert options is not None
    if len(examples.columns) > 1:
        hint = "has positives of its own; choose its sentences alone with data.columns.anchor"
        raise UserError(f"config.data.augment.name={options.name!r}: {data.train} {hint}")
    anchors = examples.columns[0]
    name, percent, both, lexicon, mlm_model = options
    change = functools.partial(
        augment, anchors, name=name, percent=percent, lexicon=lexicon, mlm_model=mlm_model, seed=data.seed
    )
    return dataclasses.replace(examples, columns=(change(column=0) if both else anchors, change(column=1)))
