"""Embeddings of many files, and hard negatives: long work that resumes."""
