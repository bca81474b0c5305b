"""Training files from SNLI, MNLI and ANLI.

How the authors of SimCSE made their 275,601 triplets is not published. Ours has every distinct premise, as text, with
at least one entailment and one contradiction: their file has 87.7 triplets per 100 entailment pairs, and on SNLI's
development and test pairs our rule gives 87.5 (5,863 for 6,697); one for each entailment pair whose premise has a
contradiction would give 94.7. Which of several hypotheses the authors took is open; `last` is what a dictionary filled
row by row keeps, `first` the other reading. Pairs without a label ("-", -1) are left out.
"""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from simcse_jax.choices import LABELS
from simcse_jax.data.building.reading import BLANK, Tally, read_columns, sentence
from simcse_jax.data.labels import SHORT, parse_label
from simcse_jax.data.rows import Row, open_text
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
        is_parallel = isinstance(file, Path) and file.stem == "s1"
        for row in _of_parallel_files(Path(file)) if is_parallel else read_columns(file, FIELDS):
            tally.see()
            premise, hypothesis = (sentence(field, row.where) for field in row.fields[:2])
            if not premise or not hypothesis:
                tally.dropped[BLANK] += 1
                continue
            label = row.fields[2]
            label = SHORT.get(label, label) if isinstance(label, str) else label
            yield LabelledPair(premise, hypothesis, parse_label(label, f"{row.where}: the label"))


def _of_parallel_files(path: Path) -> Iterator[Row]:
    """SentEval's form: s1.SPLIT, s2.SPLIT and labels.SPLIT, a premise, a hypothesis and a label a line."""
    files = [path.with_name(f"{name}{path.suffix}") for name in ("s1", "s2", "labels")]
    for number, fields in enumerate(itertools.zip_longest(*map(open_text, files)), 1):
        if None in fields:
            raise UserError(f"{files[fields.index(None)]}: ends at line {number - 1}, before the files next to it")
        yield Row(f"{path}: line {number}", fields)


def labelled_pairs(pairs: Iterator[LabelledPair], tally: Tally) -> Iterator[tuple[str, ...]]:
    """(premise, hypothesis, label) of every pair with a label."""
    counts = [0] * len(LABELS)
    for pair in pairs:
        if pair.label is None:
            tally.dropped[UNLABELLED] += 1
            continue
        counts[pair.label] += 1
        yield pair.premise, pair.hypothesis, LABELS[pair.label]
    tally.notes.append(", ".join(f"{count:,} {label}" for count, label in zip(counts, LABELS, strict=True)))


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
            tally.dropped[UNLABELLED] += 1
            continue
        hypotheses = by_premise.setdefault(premise, {})
        if label not in wanted:
            tally.dropped["neutral"] += 1
            continue
        if label in hypotheses:
            tally.dropped["with another hypothesis of the same premise and label"] += 1
        if label not in hypotheses or hypothesis == "last":
            hypotheses[label] = text
    tally.notes.append(f"{len(by_premise):,} distinct premises")
    for premise, hypotheses in by_premise.items():
        if len(hypotheses) < len(wanted):
            tally.dropped["of a premise without hypotheses of all the labels"] += len(hypotheses)
            continue
        yield premise, *(hypotheses[label] for label in wanted)
