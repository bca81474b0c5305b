"""Sentences to embeddings of sentences and of tokens."""
