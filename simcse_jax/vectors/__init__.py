"""Embeddings as arrays: how they are compared, quantized, and written as Parquet."""
