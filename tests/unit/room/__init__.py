"""Tests of the advice on missing room."""
