"""Tests of what keeps spread from breaking, over HTTP."""
