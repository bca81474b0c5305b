"""Encoders (Flax NNX), pooling and head, and Hugging Face weights both ways."""
