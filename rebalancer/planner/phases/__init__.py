"""The pipeline from constraints to moves in waves: the same for hard constraints and for soft ones."""
