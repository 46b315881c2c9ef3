"""Joint moves: a few evictions that are better together although none of them may go alone."""
