"""Embeddings for other people's programs: a file for each, with that program's own class around `SimCSE`."""
