"""Models in Hugging Face format: names, weights, tokenizers, the hub; read and written."""
