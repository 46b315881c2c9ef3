"""The settings by what they are about, one class for each group."""
