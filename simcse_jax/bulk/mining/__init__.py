"""Hard negatives for pairs: found in a corpus by its index, chosen, and written a block of pairs at a time."""
