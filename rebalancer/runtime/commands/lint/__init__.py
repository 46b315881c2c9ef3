"""What `lint` reads, checks and leaves out."""
