"""The documentation, held to what really happens."""
