"""One cycle, or one eviction, run in the test itself, with everything it did on record."""
