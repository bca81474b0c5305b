"""Scores of embeddings. Everything here takes `encode(sentences) -> array` and knows nothing of models."""
