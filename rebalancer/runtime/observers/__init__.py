"""Who listens to a cycle (`rebalancer.outcome`).

log         the log
events      Events on pods and owners
planning    whether a plan is being made
neighbours  others that move pods in the same cluster
notices     messages for webhooks and chats
"""
