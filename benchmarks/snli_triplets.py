"""Make supervised SimCSE triplets from SentEval's SNLI files.

    python -m benchmarks.snli_triplets --snli senteval/SNLI --output snli.csv

The folder holds ``{s1,s2,labels}.{dev,test}``: premise, hypothesis and label, one a line, in parallel files.
"""

import argparse
import csv
from collections.abc import Iterable, Iterator
from pathlib import Path


def read_split(folder: Path, split: str) -> Iterator[tuple[str, str, str]]:
    """Yield (premise, hypothesis, label) for each line of one split."""
    columns = [
        [line.strip() for line in (folder / f"{name}.{split}").read_text(encoding="utf-8").rstrip("\n").split("\n")]
        for name in ("s1", "s2", "labels")
    ]
    yield from zip(*columns, strict=True)


def make_triplets(rows: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Give (premise, last entailed, last contradicted hypothesis) for each premise that has both."""
    hypotheses: dict[str, dict[str, str]] = {}
    for premise, hypothesis, label in rows:
        hypotheses.setdefault(premise, {})[label] = hypothesis
    return [
        (premise, by_label["entailment"], by_label["contradiction"])
        for premise, by_label in hypotheses.items()
        if "entailment" in by_label and "contradiction" in by_label
    ]


def main() -> None:
    """Read the files, write the triplets."""
    parser = argparse.ArgumentParser(description="Make SimCSE triplets from SentEval's SNLI dev and test files.")
    parser.add_argument("--snli", type=Path, required=True, help="folder with {s1,s2,labels}.{dev,test}")
    parser.add_argument("--output", type=Path, required=True, help="CSV file to write")
    args = parser.parse_args()
    triplets = make_triplets(row for split in ("dev", "test") for row in read_split(args.snli, split))
    with args.output.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("sent0", "sent1", "hard_neg"))
        writer.writerows(triplets)
    print(f"{len(triplets)} triplets written to {args.output}")


if __name__ == "__main__":
    main()
