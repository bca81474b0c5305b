"""The names that objectives' fields may have as values. Imports nothing."""

READINGS = {  # of SimCSE++'s objectives: what the paper prints, and what its authors' code computes
    "off_dropout": {
        "paper": "m multiplies the sum of the negatives, as in SimCSE++'s equation 3",
        "released": "m multiplies the positive pair's similarity, as in its authors' code",
    },
    "dimension_wise": {
        "paper": "SimCSE++'s equation 5 as printed",
        "released": "the equation in its authors' code",
    },
    "barlow_twins": {
        "paper": "a correlation that is not centred, as in SimCSE++'s equation 4",
        "released": "batch-normalized and so centred, as in its authors' code",
    },
}
SIMILARITIES = ("cosine", "dot")  # of InfoNCE
UNPAIRED = ("mlm", "replaced_token_detection", "softmax_nli")  # all other objectives treat every pair as positive
UNPROJECTED = ("mlm", "softmax_nli")  # objectives that see no projected embeddings


def check_reading(objective: str, reading: str) -> None:
    """Refuses a name that is no reading of an objective.

    Raises:
      ValueError: with the names that there are.
    """
    if reading not in READINGS[objective]:
        raise ValueError(f"reading is {reading!r}; it must be {' or '.join(READINGS[objective])}")
