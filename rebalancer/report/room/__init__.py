"""What room is missing: the content, the same in a sentence, for a terminal, and as CapacityBuffers."""
