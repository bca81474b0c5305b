"""Reads and writes models in Hugging Face format: names, weights, tokenizers, the hub."""
