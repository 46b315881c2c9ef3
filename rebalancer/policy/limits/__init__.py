"""How many pods may be evicted, and when."""
