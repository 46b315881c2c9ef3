"""How many pods may be evicted, and when.

budgets, quota, in_flight          how many pods may be away together
caps                               how many evictions in a cycle, an hour and a day
windows, cron                      in which hours of the week
circuit_breaker, silent_scheduler  when nothing is evicted, because something is wrong
"""
