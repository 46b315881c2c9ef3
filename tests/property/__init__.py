"""The plan's contract, held on random clusters and judged by code of `tests.support` alone."""
