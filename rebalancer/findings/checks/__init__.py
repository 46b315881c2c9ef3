"""The checks: each looks for one kind of mistake in workloads, constraints, nodes or budgets."""
