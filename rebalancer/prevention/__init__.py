"""What keeps spread from breaking, so that nothing has to be evicted: the rules, without I/O."""
