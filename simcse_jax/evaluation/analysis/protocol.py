"""The choices that the isotropy paper leaves open. The defaults come closest to its figures; see docs/analysis.md."""

import dataclasses

from simcse_jax.errors import UserError

# The values of each choice, the default first, and their meanings.
CHOICES = {
    "special_tokens": {
        "in": "the tokens around a sentence, [CLS] and [SEP], are measured like any others",
        "out": "they are left out of every figure",
    },
    "units": {
        "pieces": "the tokens of the model's vocabulary",
        "words": "the text between blanks and punctuation marks: the mean of the embeddings of its pieces",
    },
    "repeated_sentences": {"keep": "a sentence counts as often as it occurs", "drop": "it counts once"},
    "occurrences": {
        "first": "of a token that occurs several times in a sentence the first alone is a context",
        "all": "each is one",
    },
    "average": {
        "types": "self-similarity is the mean over the token types of a type's mean over its pairs",
        "pairs": "it is the mean over all pairs of the same token, so frequent ones weigh most",
    },
    "contributions": {
        "shares": "eq. 6 of each type as a share of its whole, a context paired with itself too; the mean over types",
        "types": "eq. 6 of each type over pairs of different contexts; the mean over types",
        "pairs": "eq. 6 over all pairs of different contexts of the same token",
    },
    "ranking": {
        "products": "informativity first removes dimensions large by eq. 6 without its norms over random pairs",
        "cosines": "it goes by eq. 6 over random pairs",
        "self_similarity": "it goes by eq. 6 over pairs of the same token, as `contributions` says",
    },
}


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How token embeddings are measured.

    `special_tokens` to `ranking`: see `CHOICES`.
    """

    special_tokens: str = "in"
    units: str = "pieces"
    repeated_sentences: str = "keep"
    occurrences: str = "first"
    average: str = "types"
    contributions: str = "shares"
    ranking: str = "products"
    min_count: int = 5  # token types that occur less often in the data have no self-similarity
    max_types: int = 5000  # that have one, the most frequent: memory grows with them
    samples: int = 1000  # tokens of the anisotropy baseline, one each of as many sentences
    seed: int = 0  # of that sample

    def __post_init__(self) -> None:
        for name, values in CHOICES.items():
            if getattr(self, name) not in values:
                raise UserError(f"{option(name)} {getattr(self, name)}: must be one of {', '.join(values)}")
        for name, least in (("min_count", 2), ("max_types", 1), ("samples", 3), ("seed", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{option(name)} {getattr(self, name)}: must be {least} or more")


def option(name: str) -> str:
    """The command-line option of a field."""
    return f"--{name.replace('_', '-')}"
