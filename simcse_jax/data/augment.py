"""The discrete augmentations that SimCSE compares with dropout (Table 1), on text.

The change to a sentence is a function of (seed, its row, its column) and of nothing else.
Words are separated by white space.
"""

from collections.abc import Callable, Sequence

import numpy as np

from simcse_jax.data.draws import row_generator

CHANGES = ("crop", "delete", "delete_one", "synonym")  # of one sentence's words


def augment(
    sentences: Sequence[str], *, name: str, percent: float, lexicon: str, mlm_model: str, seed: int, column: int
) -> list[str]:
    """A changed copy of each sentence.

    Args:
      sentences: N sentences; a sentence's index is its row.
      name: one of `choices.AUGMENTATIONS`.
      percent: the share of words that `crop` and `delete` remove, or of tokens that `mlm` replaces.
      lexicon: for `synonym`, see `Synonyms`.
      mlm_model: for `mlm`, see `replace_by_mlm`.
      seed, column: these and the row decide the outcome.
    """
    if name == "mlm":
        from simcse_jax.data.masked_words import replace_by_mlm  # needs JAX, which is not imported to check a config

        return replace_by_mlm(sentences, mlm_model, percent, seed=seed, column=column)
    change, changed, same = change_of(name, percent, lexicon), [], 0
    for row, text in enumerate(sentences):
        words = text.split()
        changed_words = change(words, row_generator(seed, row, column))
        same += changed_words == words
        changed.append(" ".join(changed_words))
    if name == "synonym" and same:
        from simcse_jax.devices import processes  # needs JAX, too

        processes.say(f"{lexicon}: {same} of {len(sentences)} sentences have no word with a synonym; unchanged")
    return changed


def change_of(name: str, percent: float, lexicon: str) -> Callable[[list[str], np.random.Generator], list[str]]:
    """The function of words that is one of `CHANGES`; see `augment`."""
    if name == "synonym":
        from simcse_jax.data.synonyms import Synonyms

        return Synonyms(lexicon).replace
    if name == "delete_one":
        return delete_one
    remove = crop if name == "crop" else delete
    return lambda words, generator: remove(words, percent, generator)


def crop(words: Sequence[str], percent: float, generator: np.random.Generator) -> list[str]:
    """A random span of 100 - `percent` % of the words, at least one."""
    kept = len(words) - _share(words, percent)
    start = int(generator.integers(len(words) - kept + 1))
    return list(words[start : start + kept])


def delete(words: Sequence[str], percent: float, generator: np.random.Generator) -> list[str]:
    """The words without a random `percent` % of them; keeps at least one."""
    gone = set(generator.permutation(len(words))[: _share(words, percent)].tolist())
    return [word for index, word in enumerate(words) if index not in gone]


def delete_one(words: Sequence[str], generator: np.random.Generator) -> list[str]:
    """The words without a random one; keeps a single word."""
    if len(words) < 2:
        return list(words)
    gone = int(generator.integers(len(words)))
    return [*words[:gone], *words[gone + 1 :]]


def _share(words: Sequence[str], percent: float) -> int:
    """The number of words in `percent` %, rounded (half up), at most all but one."""
    return max(0, min(int(len(words) * percent / 100 + 0.5), len(words) - 1))
