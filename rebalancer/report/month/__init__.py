"""A simulated month: the content, the same for a terminal, and as a page with a picture."""
