"""Plans frozen as files, so that a change that should not alter a plan is known not to.

A later change may alter them by new fields, by wave numbers, or for the better by the plan's objective; its
commit says which and why.
"""
