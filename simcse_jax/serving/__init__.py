"""A server of embeddings: batches of what arrives together, and HTTP as OpenAI's clients speak it."""
