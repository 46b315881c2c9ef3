"""Room on nodes: one filter, and two scores with what they have in common."""
