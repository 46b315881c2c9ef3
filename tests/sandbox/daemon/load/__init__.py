"""The daemon under load and for a long time."""
