"""Encoders (Flax NNX) with dropout, pooling and head. No files are read here."""
