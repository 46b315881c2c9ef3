"""A cluster without its names: what no plan depends on is left out, and names become pseudonyms.

redact           objects → the same, redacted
redacted_fields  what is kept of each kind, in terms of rules
pseudonyms       a name → another, in the same order; known_keys: names that reveal nothing
"""
