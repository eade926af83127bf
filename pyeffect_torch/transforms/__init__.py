"""Graph to graph: derivatives, batching, checkpoints, custom rules; walks that add nodes."""
