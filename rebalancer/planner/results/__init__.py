"""What was planned, as the parts of a Plan: counts before and after, moves, and the reasons for the rest."""
