"""The tests: each folder says what it holds the package to."""
