"""The judge of plans, judged: by counting, by exhaustive search, by recorded verdicts."""
