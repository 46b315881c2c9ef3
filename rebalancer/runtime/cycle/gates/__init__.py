"""Whether something may be done now: a cycle, a move, a request that can evict."""
