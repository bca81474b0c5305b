"""A run's folder, and all that is in it: its config and versions, metrics, checkpoints, the model that it trained."""
