"""Where a run's metrics go besides `metrics.jsonl`: TensorBoard, Weights & Biases, MLflow."""
