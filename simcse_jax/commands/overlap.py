"""simcse-jax overlap FILE [--positives entailment]: how many words the sentences of a pair share."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from simcse_jax.commands.command_line import Parser
from simcse_jax.errors import UserError

WORD = re.compile(r"\w+(?:['’]\w+)*")


def main() -> None:
    """The command."""
    parser = Parser(
        "overlap",
        description="Prints the lexical overlap of positive pairs (mean F1), in one line. Needs a file of pairs.",
    )
    parser.add_argument("data", help="pairs, in any form that data.train takes, e.g. a .csv with sent0 and sent1")
    parser.add_argument("--positives", default="", help="which pairs, as data.positives (default: by the columns)")
    parser.add_argument("--anchor", default="", help="the first sentence's column, if its name is unusual")
    parser.add_argument("--positive", default="", help="the second sentence's column")
    parser.add_argument("--label", default="", help="the label's column")
    args = parser.parse_args()
    from simcse_jax.data.examples import read_examples

    columns = {"anchor": args.anchor, "positive": args.positive, "label": args.label}
    examples = read_examples(args.data, columns, positives=args.positives)
    if len(examples.columns) < 2:
        raise UserError(f"{args.data}: has one column of sentences; overlap needs pairs (sent0, sent1)")
    first, second = examples.columns[:2]
    print(f"{100 * lexical_overlap(first, second):.1f}% mean F1 of {len(first):,} pairs")


def lexical_overlap(first: Sequence[str], second: Sequence[str]) -> float:
    """The mean F1 between the bags of words of N pairs (SimCSE, section 4: 39% for the entailment pairs of NLI).

    F1 = 2 |A ∩ B| / (|A| + |B|) of the multisets A and B; 0 if neither sentence has a word. A word is a lower-case run
    of letters, digits and underscores, including inner apostrophes ("don't"); everything else separates words.
    The paper does not define words.

    Raises:
      ValueError: for no pairs, or sequences of different lengths.
    """
    if not len(first):
        raise ValueError("no pairs")
    scores = [_f1(_words(a), _words(b)) for a, b in zip(first, second, strict=True)]
    return float(np.mean(scores))


def _words(sentence: str) -> Counter[str]:
    return Counter(WORD.findall(sentence.lower()))


def _f1(a: Counter[str], b: Counter[str]) -> float:
    total = a.total() + b.total()
    return 2 * (a & b).total() / total if total else 0.0
