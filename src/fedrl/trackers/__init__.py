"""Where else a run can be watched: TensorBoard, Weights & Biases, MLflow."""
