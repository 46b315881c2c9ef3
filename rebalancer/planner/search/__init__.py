"""From counts to a sequence of moves that the scheduler follows."""
