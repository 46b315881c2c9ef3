"""What single commands do besides a cycle; `rebalancer.cli` prints it."""
