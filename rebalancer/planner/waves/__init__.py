"""Which moves may be in flight together."""
