"""The names that objectives' fields may have as values. Imports nothing."""

READINGS = {  # of the dimension-wise loss
    "paper": "SimCSE++'s equation 5 as printed",
    "released": "the equation in its authors' code",
}
SIMILARITIES = ("cosine", "dot")  # of InfoNCE
UNPAIRED = ("mlm", "softmax_nli")  # all other objectives treat every pair as positive
