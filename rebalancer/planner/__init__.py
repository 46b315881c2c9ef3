"""The fewest evictions that restore spread, as a sequence that the scheduler follows."""
