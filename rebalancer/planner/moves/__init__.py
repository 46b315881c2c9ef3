"""Single moves: who can be evicted next, which pod of several, and whether the move keeps the contract."""
