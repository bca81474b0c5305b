"""simcse-jax overlap FILE [--positives entailment]: how many words the sentences of a pair share."""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from simcse_jax.commands.verbs import verb
from simcse_jax.errors import UserError

WORD = re.compile(r"\w+(?:['’]\w+)*")


@verb
def overlap(data: str, /, *, positives: str = "", anchor: str = "", positive: str = "", label: str = "") -> float:
    """Prints and returns the lexical overlap of positive pairs: the mean F1 between their words, from 0 to 1.

    Args:
      data: Pairs, in any form that `data.train` takes, such as a .csv with sent0 and sent1.
      positives: Which pairs, as `data.positives`. By default as the columns say.
      anchor: The first sentence's column, if its name is unusual.
      positive: The second sentence's column.
      label: The label's column.
    """
    from simcse_jax.data.examples import read_examples

    columns = {"anchor": anchor, "positive": positive, "label": label}
    examples = read_examples(data, columns, positives=positives)
    if len(examples.columns) < 2:
        raise UserError(f"{data}: has one column of sentences; overlap needs pairs (sent0, sent1)")
    first, second = examples.columns[:2]
    f1 = lexical_overlap(first, second)
    print(f"{100 * f1:.1f}% mean F1 of {len(first):,} pairs")
    return f1


def lexical_overlap(first: Sequence[str], second: Sequence[str]) -> float:
    """The mean F1 between the bags of words of N pairs (SimCSE, section 4: 39% for the entailment pairs of NLI).

    F1 = 2 |A ∩ B| / (|A| + |B|) of the multisets A and B; 0 if neither sentence has a word. A word is a lower-case run
    of letters, digits and underscores, including inner apostrophes ("don't"); everything else separates words.
    The paper does not define words.
    """
    scores = [_f1(_words(a), _words(b)) for a, b in zip(first, second, strict=True)]
    return float(np.mean(scores))


def _words(sentence: str) -> Counter[str]:
    return Counter(WORD.findall(sentence.lower()))


def _f1(a: Counter[str], b: Counter[str]) -> float:
    total = a.total() + b.total()
    return 2 * (a & b).total() / total if total else 0.0
