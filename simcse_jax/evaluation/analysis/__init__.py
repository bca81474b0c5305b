"""What contrastive learning does to the space: isotropy, contextualization, dimensions. Fed with token embeddings."""
