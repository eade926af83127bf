"""Graph to graph: derivatives, batching, checkpoints, custom rules. Each is a walk that adds nodes."""
