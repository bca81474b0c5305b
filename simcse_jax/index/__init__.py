"""Search: an index of sentences, its files, and the nearest rows of a matrix."""
