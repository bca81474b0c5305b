"""Make supervised SimCSE triplets, or labelled pairs, from SentEval's SNLI files.

    python -m benchmarks.snli_triplets --snli senteval/SNLI --output snli.csv

The folder holds ``{s1,s2,labels}.{dev,test}``: premise, hypothesis and label, one a line, in parallel files.
"""

import argparse
import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

LABELS = ("entailment", "contradiction", "neutral")


def read_split(folder: Path, split: str) -> Iterator[tuple[str, str, str]]:
    """Yield (premise, hypothesis, label) for each line of one split."""
    columns = [
        [line.strip() for line in (folder / f"{name}.{split}").read_text(encoding="utf-8").rstrip("\n").split("\n")]
        for name in ("s1", "s2", "labels")
    ]
    yield from zip(*columns, strict=True)


def make_triplets(rows: Iterable[tuple[str, str, str]], neutral: bool = False) -> list[tuple[str, ...]]:
    """Give (premise, last entailed, last contradicted hypothesis) for each premise that has both.

    With `neutral` the last neutral hypothesis follows, for each premise that has all three.
    """
    wanted = LABELS if neutral else LABELS[:2]
    hypotheses: dict[str, dict[str, str]] = {}
    for premise, hypothesis, label in rows:
        hypotheses.setdefault(premise, {})[label] = hypothesis
    return [
        (premise, *(by_label[label] for label in wanted))
        for premise, by_label in hypotheses.items()
        if all(label in by_label for label in wanted)
    ]


def make_pairs(rows: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Give (premise, hypothesis, label) of all pairs that the annotators agreed on."""
    return [row for row in rows if row[2] in LABELS]


def main() -> None:
    """Read the files, write the triplets or the pairs."""
    parser = argparse.ArgumentParser(description="Make SimCSE triplets from SentEval's SNLI dev and test files.")
    parser.add_argument("--snli", type=Path, required=True, help="folder with {s1,s2,labels}.{dev,test}")
    parser.add_argument("--output", type=Path, required=True, help="CSV file to write")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--neutral", action="store_true", help="a fourth column, of neutral hypotheses")
    kind.add_argument("--pairs", action="store_true", help="all pairs with their labels, instead of triplets")
    args = parser.parse_args()
    rows = (row for split in ("dev", "test") for row in read_split(args.snli, split))
    if args.pairs:
        header, examples = ("sent0", "sent1", "label"), make_pairs(rows)
    else:
        header = ("sent0", "sent1", "hard_neg", "neutral")[: 4 if args.neutral else 3]
        examples = make_triplets(rows, args.neutral)
    with args.output.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(examples)
    print(f"{len(examples)} {'pairs' if args.pairs else 'triplets'} written to {args.output}")


if __name__ == "__main__":
    main()
