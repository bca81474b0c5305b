"""The names that fields of objectives choose from. Imports nothing."""

READINGS = {  # of the dimension-wise loss
    "paper": "SimCSE++'s equation 5 as it is printed",
    "released": "what its authors' code computes",
}
SIMILARITIES = ("cosine", "dot")  # of InfoNCE
UNPAIRED = ("mlm", "softmax_nli")  # all other objectives take a pair for positive
