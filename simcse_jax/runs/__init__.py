"""A run's folder and its contents: config and versions, metrics, checkpoints, the trained model."""
