"""What several processes agree on through the API server: the lease, the ledger, the pause annotations."""
