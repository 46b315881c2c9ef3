"""Tests of the last look before an eviction, over HTTP."""
