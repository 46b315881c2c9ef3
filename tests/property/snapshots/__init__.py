"""A snapshot gives the plan of the cluster that it was taken of, redacted or not."""
