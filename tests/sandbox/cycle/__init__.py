"""Tests of a whole cycle, over HTTP."""
