"""One cycle as a person or a CronJob runs it, with what it needs around it.

once      the cycle
session   the lease, memory and settings while it lasts
reviewed  a plan that somebody approved, from a report's JSON
steering  deletion costs, after it
"""
