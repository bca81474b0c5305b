"""Objectives: pure functions of embeddings. They know nothing of encoders, batches or files."""
