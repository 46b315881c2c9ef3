"""Commands that change a cluster, or what may be done to it."""
