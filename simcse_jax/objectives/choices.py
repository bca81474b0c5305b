"""The names that objectives' fields may have as values. Imports nothing."""

READINGS = {  # of objectives: what the paper prints, and what its authors' code computes
    "off_dropout": {
        "paper": "m multiplies the sum of the negatives, as in SimCSE++'s equation 3",
        "released": "m multiplies the positive pair's similarity, as in its authors' code",
    },
    "dimension_wise": {
        "paper": "SimCSE++'s equation 5 as printed",
        "released": "the equation in its authors' code",
    },
    "contrastive_tension": {
        "paper": "negative pairs are the anchor of the group with other sentences, as the paper says",
        "released": "negative pairs are two fresh sentences each, as in the authors' code",
    },
    "barlow_twins": {
        "paper": "a correlation that is not centred, as in SimCSE++'s equation 4",
        "released": "batch-normalized and so centred, as in its authors' code",
    },
}
SIMILARITIES = ("cosine", "dot")  # of InfoNCE
NEGATIVES = {  # of InfoNCE: which views of the batch's other examples
    "other": "their positives",
    "both": "their positives and their anchors, as in NT-Xent",
}
GRADED = ("cosent", "angle", "cosine_mse")  # objectives of pairs with scores
UNIT_SCORES = ("cosine_mse",)  # those of them whose scores are from 0 to 1
TAUGHT = ("embedding_mse", "margin_mse", "distill_kl", "gist")  # objectives that need a teacher
MARGINS = {  # of GIST
    "absolute": "is subtracted from the positive's similarity",
    "relative": "is a share of the positive's similarity",
}
# All other objectives treat every pair as positive.
UNPAIRED = ("mlm", "replaced_token_detection", "softmax_nli", *GRADED, "embedding_mse")
UNTRUNCATED = ("mlm", "replaced_token_detection")  # objectives of tokens, which have no sizes to choose from
# Objectives that see no projected embeddings; the features of tokens, which jensen_shannon compares, have no projector,
# nor have a teacher's embeddings.
UNPROJECTED = ("jensen_shannon", "mlm", "softmax_nli", "embedding_mse")


def check_reading(objective: str, reading: str) -> None:
    """Refuses a name that is no reading of an objective.

    Raises:
      ValueError: with the names that there are.
    """
    if reading not in READINGS[objective]:
        raise ValueError(f"reading is {reading!r}; it must be {' or '.join(READINGS[objective])}")
