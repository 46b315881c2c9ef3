"""A second, plain scheduler, with owners and budgets: what engine and planner are judged by."""
