"""Tests of single commands, over HTTP."""
