"""Tests of one part each, in the folders of the package."""
