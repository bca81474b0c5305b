"""Training files from SNLI, MNLI and ANLI.

How the authors of SimCSE made their 275,601 triplets is not published. The paper's 314k entailment pairs are all of
them (183,416 of SNLI's and 130,899 of MNLI's training pairs). Nearly every premise has hypotheses of all three labels,
so one triplet for each entailment pair would give nearly as many triplets; the authors say that examples without a
hard negative were left out (princeton-nlp/SimCSE, issue 238), which cannot explain the rest. What can is one triplet
for each distinct premise: many of SNLI's captions, and some of MNLI's sentences, were given to several annotators. So
that is our rule: every distinct premise, as text, with at least one entailment and at least one contradiction.

The published file has 87.7 triplets per 100 entailment pairs. On SNLI's development and test pairs our rule gives 87.5
(5,863 for 6,697), one for each entailment pair whose premise has a contradiction 94.7. On the whole of both training
sets it has not been run here. Which of several hypotheses the authors took is open; `last` is what a dictionary filled
row by row keeps, `first` the other reading. Pairs without a label ("-", -1) are left out.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from simcse_jax.choices import LABELS
from simcse_jax.data.building.reading import BLANK, Tally, columns, open_table, sentence
from simcse_jax.data.labels import SHORT, parse_label
from simcse_jax.data.rows import open_text
from simcse_jax.errors import UserError

HYPOTHESES = ("last", "first")
FIELDS = (  # of SNLI's and MNLI's files, of the hubs' data sets, of ANLI's files
    ("sentence1", "sentence2", "gold_label"),
    ("premise", "hypothesis", "label"),
    ("context", "hypothesis", "label"),
    ("sent0", "sent1", "label"),  # our own nli_pairs
)
# The names of a split's files, as SNLI, MNLI, ANLI (its three rounds) and SentEval have them.
FILES = ("*_{split}.jsonl", "*_{split}_*.jsonl", "R[123]/{split}.jsonl", "{split}.jsonl", "s1.{split}")
UNLABELLED = "without a label"


class LabelledPair(NamedTuple):
    """A premise and a hypothesis."""

    premise: str
    hypothesis: str
    label: int | None  # its place in `LABELS`; None: the annotators disagreed


def read_pairs(files: Iterable[str | Path], tally: Tally) -> Iterator[LabelledPair]:
    """All pairs of files and data sets, in order; blank ones are dropped."""
    for file in files:
        if isinstance(file, Path) and file.stem == "s1":
            yield from _of_parallel_files(file, tally)
        else:
            yield from _of_table(file, tally)


def _of_table(source: str | Path, tally: Tally) -> Iterator[LabelledPair]:
    for row in columns(open_table(source), FIELDS, str(source)):
        yield from _checked(row.fields, row.where, tally)


def _of_parallel_files(path: Path, tally: Tally) -> Iterator[LabelledPair]:
    """SentEval's form: s1.SPLIT, s2.SPLIT and labels.SPLIT, a premise, a hypothesis and a label a line."""
    files = [path.with_name(f"{name}{path.suffix}") for name in ("s1", "s2", "labels")]
    for number, fields in enumerate(itertools.zip_longest(*map(open_text, files)), 1):
        if None in fields:
            short = files[fields.index(None)]
            raise UserError(f"{short}: ends at line {number - 1}, before the files next to it")
        yield from _checked(fields, f"{path}: line {number}", tally)


def _checked(fields: Sequence[object], where: str, tally: Tally) -> Iterator[LabelledPair]:
    tally.see()
    premise, hypothesis = (sentence(field, where) for field in fields[:2])
    if not premise or not hypothesis:
        tally.drop(BLANK)
        return
    label = fields[2]
    label = SHORT.get(label, label) if isinstance(label, str) else label
    yield LabelledPair(premise, hypothesis, parse_label(label, f"{where}: the label"))


def labelled_pairs(pairs: Iterator[LabelledPair], tally: Tally) -> Iterator[tuple[str, ...]]:
    """(premise, hypothesis, label) of every pair with a label."""
    counts = [0] * len(LABELS)
    for pair in pairs:
        if pair.label is None:
            tally.drop(UNLABELLED)
            continue
        counts[pair.label] += 1
        yield pair.premise, pair.hypothesis, LABELS[pair.label]
    tally.notes.append(", ".join(f"{count:,} {label}" for count, label in zip(counts, LABELS, strict=True)))


def sentences(pairs: Iterator[LabelledPair], tally: Tally) -> Iterator[tuple[str, ...]]:
    """Every premise and hypothesis, as often as it occurs: the sentences on which post-processing is fit.

    BERT-flow, whitening and SimCSE++ do not say whether repeated sentences count once.
    """
    for pair in pairs:
        yield (pair.premise,)
        yield (pair.hypothesis,)


def triplets(
    pairs: Iterator[LabelledPair], tally: Tally, neutral: bool = False, hypothesis: str = HYPOTHESES[0]
) -> Iterator[tuple[str, ...]]:
    """(premise, an entailed, a contradicted hypothesis) of each distinct premise that has both (see the module).

    Args:
      pairs: of all sources; a premise in several sources counts once.
      neutral: add a neutral hypothesis, and leave out premises without one (SimCSE, Table 7).
      hypothesis: which of several with the same label to take, `last` or `first`.

    Yields:
      The premises in the order of their first labelled pair.
    """
    wanted = [LABELS.index(name) for name in ("entailment", "contradiction", "neutral")][: 3 if neutral else 2]
    by_premise: dict[str, dict[int, str]] = {}
    for premise, text, label in pairs:
        if label is None:
            tally.drop(UNLABELLED)
            continue
        hypotheses = by_premise.setdefault(premise, {})
        if label not in wanted:
            tally.drop("neutral")
            continue
        if label in hypotheses:
            tally.drop("with another hypothesis of the same premise and label")
        if label not in hypotheses or hypothesis == "last":
            hypotheses[label] = text
    tally.notes.append(f"{len(by_premise):,} distinct premises")
    for premise, hypotheses in by_premise.items():
        if len(hypotheses) < len(wanted):
            tally.drop("of a premise without hypotheses of all the labels", len(hypotheses))
            continue
        yield premise, *(hypotheses[label] for label in wanted)
