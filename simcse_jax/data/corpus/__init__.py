"""Prepared corpora: tokens on disk, read a batch at a time in the order of a keyed permutation."""
