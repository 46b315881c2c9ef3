"""What former cycles did and saw, and what follows from it for the next eviction."""
