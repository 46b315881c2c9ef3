"""Tests of the rules that keep spread from breaking."""
