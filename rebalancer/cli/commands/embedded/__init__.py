"""Commands that start the embedded cluster."""
