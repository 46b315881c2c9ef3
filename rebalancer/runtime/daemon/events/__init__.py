"""Cycles that start because something has happened, and not because their time has come."""
