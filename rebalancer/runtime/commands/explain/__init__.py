"""What `explain` does: a pod found by what a person typed, and the scheduler's decisions compared."""
