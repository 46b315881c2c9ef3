"""Keeping spread from breaking, carried out: deletion costs, at a gentle pace."""
